"""The inputs of an update: folders of seeds and committed segments missing from the earlier version.

The order is by time: seeds come before the first iteration whose scope has them. The result does not depend on
how segments were grouped into updates.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from hashlib import sha1
from typing import Any

from crawl_lib.crawldir import Kind
from crawl_lib.errors import PathNotFoundError
from crawl_lib.records import MOST_STEPS, json_object
from crawl_lib.stores import Stores
from crawl_lib.urlfiles import OUTLINKS_NAME, decode_line, part_mapping, read_outlinks
from crawl_lib.urls import UrlFilter, budget_domain_of, host_of
from crawl_lib.versions import SegmentInputs, Version, columns, find_segments

NOT_YET = datetime(9999, 12, 31, tzinfo=UTC)
"""When seeds came that no iteration has in its scope yet: after all that is there."""
SINCE_EVER = datetime(1970, 1, 1, tzinfo=UTC)
"""From when on a seed is due."""
UNLIMITED = (1 << 31) - 1
_MOST_SCORE = Decimal(10**9)
SEEDS_SCHEMA = columns(
    "key bytes, url text, host text, moment time, seen text, folder text, due time, depth int32, metadata text, "
    "score score, interval_s int64"
)
HOPS_SCHEMA = columns(
    "key bytes, url text, moment time, depth int32, redirects int32, max_depth int32, score score, counts int32, "
    "source bytes, segment int32, given score"
)

COUNTED_SCHEMA = columns("key bytes, segment int32, redirects int32")
TURNS_SCHEMA = columns("segment int32, turn int32, moment time")
SEED_TURNS_SCHEMA = columns("folder text, turn int32")

NEEDS_SCHEMA = columns("key bytes, url text, moment time, before time, steps int32")

NAMED_SCHEMA = columns("key bytes, url text, moment time")


@dataclass(frozen=True)
class SeedFacts:
    """The wishes in the metadata of a seed; None: nothing. A value without a number has no effect."""

    score: Decimal | None = None
    interval_s: int | None = None
    interval_fixed_s: int | None = None
    max_depth: int | None = None

    @classmethod
    def of(cls, metadata: str | None) -> "SeedFacts":
        """Read the metadata of a line, a JSON object.

        In a queue that people made the metadata may be any text.
        """
        value = json_object(metadata)
        fixed = _whole(value.get("interval_fixed_s"), 1)
        interval = _whole(value.get("interval_s"), 1)
        return cls(
            _score(value.get("score")), fixed or interval, fixed, _whole(value.get("max_depth"), 0)
        )


def _whole(text: Any, least: int) -> int | None:
    return (
        int(text)
        if str(text).isascii() and str(text).isdigit() and least <= int(text) < UNLIMITED
        else None
    )


def _score(text: Any) -> Decimal | None:
    try:
        value = Decimal(str(text))
    except InvalidOperation:
        return None
    return round(value, 9) if value.is_finite() and abs(value) < _MOST_SCORE else None


@dataclass(frozen=True)
class UpdateInputs(SegmentInputs):
    """The same with seeds. `seeds`: folders to take in, with when they came; `empty`: those without an accepted URL,
    which ask for no version, and are not read again once there is a next one."""

    seeds: tuple[tuple[str, datetime], ...]
    empty: tuple[str, ...]
    _filters: dict[str, UrlFilter] = field(default_factory=dict)
    _follows: dict[str, bool] = field(default_factory=dict)

    def turns(self) -> list[dict[str, Any]]:
        """Return rows of `turns`: the round of each new segment.

        Segments are named by place, the oldest first.
        """
        places = {
            folder: turn
            for turn, folder in enumerate(dict.fromkeys(ref.folder for ref, _ in self.segments))
        }
        return [
            {"segment": segment, "turn": places[ref.folder], "moment": _time_of(ref.folder)}
            for segment, (ref, _) in enumerate(self.segments)
        ]

    def seed_turns(self, turns: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return before which round each folder of seeds came.

        `turns`: rows of `turns`.
        """
        moments = list(dict.fromkeys(turn["moment"] for turn in turns))
        return [{"folder": name, "turn": bisect_left(moments, named)} for name, named in self.seeds]

    def seed_rows(self, begun: Sequence[tuple[str, datetime]]) -> Iterator[dict[str, Any]]:
        """Yield rows of seeds.

        `begun`: when the first page of each new segment was fetched. The first fetch may be earlier than the folder's
        name, which has whole seconds and runs ahead of the clock in quick rounds. Raises DamagedFileError,
        StorageError, StoppedError.
        """
        storage, seen = self.stores.storage, f"seed_{self.stores.config.crawldb.seeds}"
        for name, named in self.seeds:
            later = [
                began
                for segment, began in begun
                if int(segment.partition("/")[0]) >= named.timestamp()
            ]
            at = min([named, *later])
            where = f"{self.stores.crawl.inbox.path(name)}/{OUTLINKS_NAME}"
            for mapping in self.stores.crawl.inbox.manifest(name).outlinks.values():
                part = part_mapping(mapping, where)
                lines = read_outlinks(
                    storage.open_read(where, part.offset, part.length), where, part.count
                )
                for line in self.stores.until_stopped(lines):
                    queued, _ = decode_line(line, where)
                    facts = SeedFacts.of(queued.metadata)
                    known = {
                        "url": queued.url,
                        "host": host_of(queued.url),
                        "moment": at,
                        "due": SINCE_EVER,
                        "seen": seen,
                    }
                    asked = {
                        "score": facts.score,
                        "interval_s": facts.interval_s,
                        "depth": queued.depth,
                    }
                    key = sha1(queued.url.encode()).digest()
                    yield {
                        "key": key,
                        "folder": name,
                        "metadata": queued.metadata or None,
                        **known,
                        **asked,
                    }

    def hop_rows(
        self, hops: Iterable[dict[str, Any]], counted: dict[tuple[bytes, int], int]
    ) -> Iterator[dict[str, Any]]:
        """Yield rows of redirects' targets within the crawl.

        `hops`: answer of `crawldb/hops`.

        `counted` gets, by page and segment, how many hops had led to those that lead on by a meta refresh, or as an
        index of sitemaps.
        """
        most = self.stores.config.fetch.max_redirects
        led: dict[
            bytes, tuple[datetime, int]
        ] = {}  # by target: when something led there first, and the fewest hops
        for row in self.stores.until_stopped(hops):
            url, redirects = row["redirect_url"], 1 + _hops_to(row, led.get(row["key"]))
            key = sha1(url.encode()).digest()
            if not row["is_link"] and (
                redirects > most
                or key == row["key"]
                or not self._accepts(row["segment"], url, row["depth"])
            ):
                continue
            first, fewest = led.get(key, (row["moment"], redirects))
            led[key] = first, min(fewest, redirects)
            if row["is_link"]:
                counted.setdefault((row["key"], row["segment"]), redirects - 1)
                continue
            facts = SeedFacts.of(row["metadata"])
            limit = UNLIMITED if facts.max_depth is None else facts.max_depth
            score = next(
                (one for one in (row["score"], facts.score) if one is not None), Decimal(0)
            )
            origin = {"source": row["key"], "segment": row["segment"], "given": Decimal(0)}
            place = {
                "key": key,
                "url": url,
                "moment": row["moment"],
                "depth": row["depth"],
                "redirects": redirects,
            }
            yield {
                **place,
                "max_depth": limit,
                "score": score,
                "counts": int(row["is_other"]),
                **origin,
            }

    def requisite_rows(self, moved: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield rows of requisites to which redirects of requisites lead.

        A redirect is a step.

        `moved`: answer of `crawldb/moved_requisites`.
        """
        url_filter = UrlFilter(self.stores.config.urls, (), self.stores.config.traps)
        is_same_site = self.stores.config.parse.requisites == "same_site"
        for row in self.stores.until_stopped(moved):
            url, steps = row["redirect_url"], row["steps"] + 1
            domain = budget_domain_of(host_of(row["url"])) if is_same_site else None
            key = sha1(url.encode()).digest()
            accepted, _ = url_filter.verdict_on_requisite(url, host_of(url), domain)
            if accepted and steps <= MOST_STEPS and key != row["key"]:
                yield {
                    "key": key,
                    "url": url,
                    "moment": row["moment"],
                    "before": row["before"],
                    "steps": steps,
                }

    def _accepts(self, segment: int, url: str, depth: int) -> bool:
        """Return whether a redirect's target is in the iteration's scope.

        A seed's redirect widens the scope.
        """
        folder = self.segments[segment][0].folder
        if folder not in self._filters:
            iteration = self.stores.crawl.folder(folder).iteration()
            self._follows[folder] = iteration.kind is not Kind.LIVE
            scope = (
                set[str]() if not iteration.is_round else self.stores.crawl.scopes.read(iteration)
            )
            self._filters[folder] = UrlFilter(
                self.stores.config.urls, scope, self.stores.config.traps
            )
        accepted, rule = self._filters[folder].verdict(url, host_of(url), depth)
        return self._follows[folder] and (accepted or (rule == "scope" and depth == 0))


def _hops_to(row: dict[str, Any], led: tuple[datetime, int] | None) -> int:
    """Count the hops that led to a row's page since a link.

    `led`: as in `hop_rows`.
    """
    known: int | None = row["redirects"]
    if led is None:
        return known or 0
    if known is None:  # a page that was visited before anything led there is as a seed
        return led[1] if led[0] <= row["began"] else 0
    return min(known, led[1])


def named_rows(named: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield rows of sitemaps named by robots.txt.

    A sitemap counts as found when its iteration began. `named`: answer of `crawldb/named`.
    """
    for row in named:
        moment = _time_of(row["name"].partition("/")[0])
        yield {"key": row["key"], "url": row["url"], "moment": moment}


def _time_of(folder: str) -> datetime:
    """Return the time in the name of an iteration's folder."""
    return datetime.fromtimestamp(int(folder), UTC)


def find_inputs(stores: Stores, parent: Version | None) -> UpdateInputs:
    """Find seeds and segments missing from a version.

    Raises StorageError, DamagedFileError, StoppedError.
    """
    known = parent.manifest if parent else {"segments": {}, "seeds": []}
    found = find_segments(stores, known["segments"])
    new = [name for name in stores.crawl.inbox.seeds() if name not in known["seeds"]]
    empty = tuple(
        name for name in new if not stores.crawl.inbox.manifest(name).accepted
    )  # most runs are given none
    came = sorted(_times(stores, set(new).difference(empty)), key=lambda pair: (pair[1], pair[0]))
    return UpdateInputs(stores, found.there, found.taken_out, found.segments, tuple(came), empty)


def _times(stores: Stores, seeds: Iterable[str]) -> Iterator[tuple[str, datetime]]:
    """Yield when folders of seeds came.

    Each folder comes with the start of the first iteration whose scope has its hosts.
    """
    waiting = set(seeds)
    for folder in stores.until_stopped(stores.crawl.folders() if waiting else ()):
        try:
            named = stores.crawl.folder(folder).iteration().seeds
        except PathNotFoundError:
            continue
        for name in waiting.intersection(named):
            yield name, _time_of(folder)
        waiting.difference_update(named)
        if not waiting:
            return
    for name in sorted(waiting):
        yield name, NOT_YET
