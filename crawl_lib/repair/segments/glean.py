"""Good groups out of the WARC files of a damaged segment, byte for byte, and what is known of the others."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple

from crawl_lib.fetch import outcome_of_status
from crawl_lib.parse import parse_head
from crawl_lib.records import Fetched, QueuedUrl
from crawl_lib.segment import Damage, WarcRecord, Whole, group_of, microseconds_of, scan, split_head, warc_fields
from crawl_lib.stopping import Work
from crawl_lib.urls import key_of

EXAMPLES = 20
ROBOTS_PATH = "/robots.txt"
IMPORTED_FROM = "imported_from"
"""A name in the metadata of imported pages, which may have no request."""


class Fragment(NamedTuple):
    """A whole response whose metadata record is lost: its file, and the place of its record."""

    url: str
    warc_file: str
    offset: int
    length: int


@dataclass
class Found:
    """What the WARC files of a segment hold.

    `pages`, `robots`: whole groups; `repeated`: groups that were there twice; `requests_lost`: of whole pages.
    `damage`: places by reason, `damaged_bytes` in all, `places`: the first of them in words. `keys`, `positions`: of
    the pages. `fragments`: see there. `unfetched`: URLs whose groups are broken, by key, as far as they are known.
    `info`: fields of the first warcinfo record. `first_us`, `last_us`: POSIX microseconds of the first and last page.
    """

    pages: int = 0
    robots: int = 0
    repeated: int = 0
    requests_lost: int = 0
    damage: Counter[str] = field(default_factory=Counter)
    damaged_bytes: int = 0
    places: list[str] = field(default_factory=list)
    keys: set[bytes] = field(default_factory=set)
    positions: set[int] = field(default_factory=set)
    fragments: list[Fragment] = field(default_factory=list)
    unfetched: dict[bytes, QueuedUrl] = field(default_factory=dict)
    info: dict[str, str] = field(default_factory=dict)
    first_us: int | None = None
    last_us: int | None = None

    def note_damage(self, reason: str, where: str, size: int = 0) -> None:
        """Count a damage. `where`: file and place, in words; `size`: bytes that are lost."""
        self.damage[reason] += 1
        self.damaged_bytes += size
        if len(self.places) < EXAMPLES:
            self.places.append(f"{where}: {reason}")


class Gleaner:
    """Reads WARC files one after the other into one `Found`."""

    def __init__(self, found: Found, work: Work) -> None:
        self._found, self._work = found, work
        self._name = ""
        self._out: BinaryIO | None = None
        self._held: list[Whole] = []

    def glean(self, name: str, file: BinaryIO, out: BinaryIO | None) -> int:
        """Copy the good groups of a WARC file, in file order, to `out`; returns how many groups these are."""
        self._name, self._out, self._held = name, out, []
        groups, has_info, done, told = self._groups(), False, 0, 0
        for item in scan(file):
            if isinstance(item, Damage):
                self._found.note_damage(item.reason, f"{name}, byte {item.offset}", item.end - item.offset)
                self._break()
                done = item.end
                continue
            if item.record.type == "warcinfo":
                if not has_info:
                    self._copy([item])
                has_info = True
                self._found.info = self._found.info or warc_fields(item.record.block)
            else:
                self._add(item)
            done = item.record.offset + item.record.length
            if done - told > 1 << 22:
                told = done
                self._work.report(reading=name, bytes=done)
        self._break()
        return self._groups() - groups

    def _groups(self) -> int:
        return self._found.pages + self._found.robots

    def _add(self, item: Whole) -> None:
        kind = item.record.type
        if kind == "metadata":
            held, self._held = self._held, []
            self._group(held, item)
        elif kind in {"request", "response"}:
            if self._held and (kind == "request" or self._held[-1].record.type == "response"):
                self._found.note_damage("no_metadata", f"{self._name}, byte {item.record.offset}")
                self._break()
            self._held.append(item)
        else:
            self._found.note_damage("foreign_record", f"{self._name}, byte {item.record.offset}", item.record.length)

    def _group(self, held: Sequence[Whole], metadata: Whole) -> None:
        """A metadata record and what stands before it: a whole group, or parts of broken ones."""
        response_id = metadata.record.headers.get("warc-concurrent-to")
        ours = [item for item in held if response_id and _belongs(item.record, response_id)]
        self._note_parts([item for item in held if item not in ours])
        try:
            has_response = any(item.record.type == "response" for item in ours)
            fields = warc_fields(metadata.record.block)
            if response_id and not has_response:
                self._note_unfetched(metadata.record, fields)
                return
            group = group_of([*(item.record for item in ours), metadata.record], self._name, 0)
        except (KeyError, ValueError):
            self._found.note_damage("no_group", f"{self._name}, byte {metadata.record.offset}")
            return
        found = self._found
        if group.taken is None:
            found.robots += 1
        elif group.taken.key in found.keys or group.taken.position in found.positions:
            found.repeated += 1
            return
        else:
            found.pages += 1
            found.keys.add(group.taken.key)
            found.positions.add(group.taken.position)
            self._note_time(round(group.fetched.time * 1_000_000))
        if has_response and len(ours) < 2 and IMPORTED_FROM not in fields.get("krake-seed-metadata", ""):
            found.requests_lost += 1
        self._copy([*ours, metadata])

    def _copy(self, items: Sequence[Whole]) -> None:
        if self._out is not None:
            self._out.write(b"".join(item.raw for item in items))

    def _break(self) -> None:
        held, self._held = self._held, []
        self._note_parts(held)

    def _note_parts(self, items: Sequence[Whole]) -> None:
        """Records whose metadata record is lost."""
        responses = [item.record for item in items if item.record.type == "response"]
        for record in responses:
            self._found.fragments.append(Fragment(record.url, self._name, record.offset, record.length))
        if not responses:
            for item in items:
                self._note_lost(QueuedUrl(item.record.url))

    def _note_unfetched(self, record: WarcRecord, fields: Mapping[str, str]) -> None:
        """A metadata record whose response is lost. Raises KeyError or ValueError."""
        if fields["krake-kind"] == "page":
            via = fields.get("via")
            self._note_lost(
                QueuedUrl(
                    fields.get("krake-url") or record.url,
                    bytes.fromhex(via) if via else None,
                    int(fields["depth"]),
                    int(fields["krake-redirects"]),
                    fields.get("krake-seed-metadata", ""),
                )
            )

    def _note_lost(self, queued: QueuedUrl) -> None:
        if queued.url and not is_robots(queued.url):
            self._found.unfetched.setdefault(key_of(queued.url), queued)

    def _note_time(self, time_us: int) -> None:
        found = self._found
        found.first_us = time_us if found.first_us is None else min(found.first_us, time_us)
        found.last_us = time_us if found.last_us is None else max(found.last_us, time_us)


def _belongs(record: WarcRecord, response_id: str) -> bool:
    own = record.headers.get("warc-record-id" if record.type == "response" else "warc-concurrent-to")
    return own == response_id


def is_robots(url: str) -> bool:
    """Whether a URL is that of a robots.txt, whose captures are no pages."""
    return url.endswith(ROBOTS_PATH) and url.count("/") == 3


def fetched_of(record: WarcRecord, url: str) -> Fetched:
    """A response record alone as what was fetched. Raises KeyError or ValueError where it is not HTTP, or undated."""
    head, body = split_head(record.block)
    status = parse_head(head).status
    if not head.startswith(b"HTTP/") or not status:
        raise ValueError("not an HTTP response")
    return Fetched(
        url=url,
        time=microseconds_of(record.headers["warc-date"]) / 1_000_000,
        outcome=outcome_of_status(status, head),
        status=status,
        ip=record.headers.get("warc-ip-address"),
        head=head,
        body=body,
        truncated=record.headers.get("warc-truncated"),
        attempts=1,
    )
