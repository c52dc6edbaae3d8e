"""Reading a worker's spool again: whole groups out of a WARC file that a kill cut anywhere."""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha1
from pathlib import Path
from typing import NamedTuple, Self

from crawl_lib.records import Earlier, Fetched, QueuedUrl, TakenUrl
from crawl_lib.segment.encoder import Position
from crawl_lib.states import Outcome
from crawl_lib.warc import FileId, WarcRecord, microseconds_of, split_head, walk, warc_fields


class Recovered(NamedTuple):
    """One whole group. `taken`: None for a robots.txt capture. `digest`: of the response's payload, "" where it is
    not certain, None without a response. `end`: the byte after the group in its file."""

    taken: TakenUrl | None
    fetched: Fetched
    position: Position
    digest: str | None
    end: int

    @classmethod
    def groups_of(cls, records: Iterable[WarcRecord], warc_file: str) -> Iterator[Self | int]:
        """Read the complete groups among records, as `read_groups` does."""
        held: list[WarcRecord] = []
        for record in records:
            end = record.offset + record.length
            if record.type == "warcinfo":
                yield end
                continue
            held.append(record)
            if record.type == "metadata":
                try:
                    group = cls.group_of(held, warc_file, end)
                except (KeyError, ValueError):
                    return
                yield group
                held = []

    @classmethod
    def group_of(cls, records: Sequence[WarcRecord], warc_file: str, end: int) -> Self:
        """Decode a group's records as a fetch.

        The metadata record is the last one. Raises KeyError or ValueError where they are no group.
        """
        metadata = records[-1]
        fields = warc_fields(metadata.block)
        by_type = {record.type: record for record in records}
        response, request = (
            by_type.get("response") or by_type.get("revisit"),
            by_type.get("request"),
        )
        main = response or metadata
        block = response.block if response else b""
        head, body = split_head(block)
        if "krake-head-bytes" in fields:
            head, body = (
                block[: int(fields["krake-head-bytes"])],
                block[int(fields["krake-head-bytes"]) :],
            )
        elif "krake-head" in fields:
            head = fields["krake-head"].encode("latin-1")
        url = fields.get("krake-url") or main.url
        taken = cls.taken_of(fields, url)
        revisits = None
        if main.type == "revisit":
            revisits = Earlier.of(taken.queued.earlier) if taken else None
            if revisits is None:
                raise ValueError("a revisit that does not say of what")
        fetched = Fetched(
            url=url,
            time=microseconds_of(main.headers["warc-date"]) / 1_000_000,
            outcome=Outcome(fields["krake-outcome"]),
            status=_number(fields["krake-status"], 1 << 15) if "krake-status" in fields else None,
            ip=main.headers.get("warc-ip-address"),
            request=request.block if request else b"",
            head=head,
            body=body,
            truncated=main.headers.get("warc-truncated") if revisits is None else None,
            attempts=_number(fields["krake-attempts"]),
            duration_ms=_number(fields["fetchTimeMs"]),
            error=fields.get("krake-error", ""),
            retry_at=_number(fields["krake-retry-at"], 1 << 40)
            if "krake-retry-at" in fields
            else None,
            revisits=revisits,
        )
        digest = main.headers.get("warc-payload-digest", "") if response else None
        return cls(taken, fetched, Position(warc_file, main.offset, main.length), digest, end)

    @staticmethod
    def taken_of(fields: dict[str, str], url: str) -> TakenUrl | None:
        """Return the URL of a metadata record.

        None: a robots.txt capture. Raises KeyError or ValueError.
        """
        if fields["krake-kind"] == "robots":
            return None
        via = fields.get("via")
        queued = QueuedUrl(
            url,
            bytes.fromhex(via) if via else None,
            _number(fields["depth"]),
            _number(fields["krake-redirects"]),
            fields.get("krake-seed-metadata", ""),
            list_name=fields.get("krake-list", ""),
            earlier=fields.get("krake-earlier", ""),
            requisite=_number(fields.get("krake-requisite", "0")),
        )
        return TakenUrl(
            _number(fields["krake-position"]),
            sha1(url.encode("utf-8", "backslashreplace")).digest(),
            queued,
        )


def read_groups(path: Path, file_id: FileId | None = None) -> Iterator[Recovered | int]:
    """Read the complete groups of a spooled WARC file, in file order.

    The first result is a number: where the warcinfo record ends. Ends at the first byte that is no whole group: what
    follows was in flight when the process died. Ends also at a record that does not carry the id of the file. `file_id`
    learns that id.
    """
    with path.open("rb") as file:
        yield from Recovered.groups_of(walk(file, file_id=file_id), path.name)


def _number(text: str, limit: int = 1 << 31) -> int:
    """Parse a number that the tables can hold.

    Raises ValueError: a server's answer may look like one of our records.
    """
    number = int(text)
    if not 0 <= number < limit:
        raise ValueError(f"{text}: not a number of a record of ours")
    return number
