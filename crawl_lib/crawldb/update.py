"""The update: the earlier version, missing seeds and segments, and a new version.

In the words of the tables of `sql/crawldb/`: what happened to URLs are `events` (captures, seeds), each with its place
among those of its URL. The matrix says what a row is `after` one event; where a URL has several, all but the last are
done in `states`, one after the other. Then links and redirects are joined (`found`), and rows are written.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crawl_lib.crawldb.filtering import RULED_SCHEMA, ruled
from crawl_lib.crawldb.inputs import (
    COUNTED_SCHEMA,
    HOPS_SCHEMA,
    NAMED_SCHEMA,
    NEEDS_SCHEMA,
    SEED_TURNS_SCHEMA,
    SEEDS_SCHEMA,
    TURNS_SCHEMA,
    UpdateInputs,
    find_inputs,
    named_rows,
)
from crawl_lib.crawldb.matrix import matrix_table, outcome_table
from crawl_lib.crawldb.rounds import LEFT_SCHEMA, MARKS_SCHEMA, STOOD_SCHEMA, Marks
from crawl_lib.crawldb.schedule import KINDS_SCHEMA, Kinds, facts_table, schedule_table
from crawl_lib.crawldb.scores import Scores
from crawl_lib.crawldb.table import CRAWLDB, newest_version, rank_of
from crawl_lib.crawldir import SegmentRef
from crawl_lib.engine import Engine, hosts_of, in_batches
from crawl_lib.errors import InputError
from crawl_lib.parquet import parquet_batches
from crawl_lib.scoring import Scoring
from crawl_lib.segment import Manifest
from crawl_lib.stores import Stores
from crawl_lib.text import AGAIN, TEXT_SCHEMA, extract_text, text_table
from crawl_lib.urls import Chain, Scope, domain_of
from crawl_lib.versions import (
    GROUP_ROWS,
    Version,
    Versions,
    VersionWork,
    columns,
    give_segments,
    numbered,
    table_of,
    write_version,
)

log = logging.getLogger(__name__)
_DIVIDED = ("old", "events", "found", "lost", "needs")
"""The tables from which the rows of a share of the keys are made."""
_STEPS_OF_EVENTS = ("event_pairs", "event_states", "event_intervals")
"""The steps of `after`."""
_STEPS_OF_ROWS = ("linked_rows", "current_rows", "ruled_rows")
"""The steps of `rows`."""
_MOST_GROUPS = 16
"""Of segments: for each of them all events are read."""
_BEGUN = columns("name text, began time")
_LINKED = columns("key bytes, linked_at time")
_STANDING = columns("key bytes, segment int32, score score")
_ENDED = columns("key bytes, score score")
_HINTED = columns("key bytes, every_s int64, is_newer int32")
_SIGNATURES = columns("key bytes, time time, signature bytes, segment int32")


def update(stores: Stores, *, now: datetime) -> Version:
    """Add new seeds and segments to the newest version; return the result.

    If nothing is new, the newest version is returned. `now`: when, for the manifest. A second run after a kill finds
    existing files; of two simultaneous updates, the second takes in the rest. Raises DamagedFileError (an input,
    or all versions), LockedError, StorageError, NoRoomError, StoppedError, and ConfigError of a plug-in, also if
    nothing is new.
    """
    Scoring.of(stores.config)
    while True:
        parent = newest_version(stores)
        inputs = find_inputs(stores, parent)
        if parent is not None and not inputs.segments and not inputs.seeds:
            return parent
        if version := _grown(stores, parent, inputs, now):
            return version
        log.info("another update was faster: the remaining input is taken in now")


def rebuild(stores: Stores, *, now: datetime) -> Version:
    """Make a version from all seeds and segments, ignoring earlier versions.

    Raises as `update` does. The same config and all segments give the rows of the newest version. Two things differ:
    the status `duplicate` is missing, and so are scores of a rank or of plug-ins, which depend on earlier updates.
    """
    while True:
        if version := _grown(stores, None, find_inputs(stores, None), now):
            return version


def filter_crawldb(stores: Stores, *, now: datetime) -> Version:
    """Apply the config's normalisers and filters to the newest version's rows.

    An update does so too, for all rows; this one takes in no seeds and segments. The manifest's `ruled` has the counts.
    Raises InputError before the first version, and as `update` does.
    """
    while True:
        if (parent := newest_version(stores)) is None:
            raise InputError(
                f"{Versions(stores, CRAWLDB).folder}: there is no version yet; run an update first"
            )
        inputs = replace(find_inputs(stores, parent), segments=(), seeds=())
        if version := _grown(stores, parent, inputs, now):
            return version


def _grown(
    stores: Stores, parent: Version | None, inputs: UpdateInputs, now: datetime
) -> Version | None:
    """Return the next version.

    None: another update has made a version of this number.
    """
    versions = Versions(stores, CRAWLDB)
    number = versions.next_number()
    known = parent.manifest["seeds"] if parent else ()
    seeds = {*known, *inputs.empty, *(name for name, _ in inputs.seeds)}
    facts = {
        **vars(inputs.facts(parent, now)),
        "seeds": sorted(seeds.intersection(stores.crawl.inbox.seeds())),
    }
    if (rank := rank_of(parent)) is not None:
        facts["ranked"] = rank
    scoring = Scoring.of(stores.config, now=facts["now"], version=number)
    with VersionWork.of(versions, number) as work:
        made = _Update(work, parent, inputs, Scores(work, scoring))
        return write_version(versions, number, made.ruled(facts), facts)


@dataclass
class _Update:
    """One update."""

    work: VersionWork
    parent: Version | None
    inputs: UpdateInputs
    scores: Scores

    @property
    def stores(self) -> Stores:
        """The stores of the crawl."""
        return self.work.stores

    @property
    def engine(self) -> Engine:
        """The engine of the joins."""
        return self.work.engine

    def ruled(self, facts: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        """Yield the new version's rows, filtered by the chain of `crawldb`.

        Rows are in order of keys; counts of the chain go to `facts`.
        """
        chain, counts = Chain(self.stores.config.urls, Scope.CRAWLDB), Counter[str]()
        if chain.is_empty:
            yield from self.rows()
            return
        self.work.keep("ruled", RULED_SCHEMA, ruled(self.rows(), chain, counts))
        facts["ruled"] = dict(sorted(counts.items()))
        for batch in self.engine.stream("crawldb/merged", GROUP_ROWS, "crawldb.filter"):
            yield with_names(batch)

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield rows in order of keys, as events and links make them."""
        shares = self._captures()
        self._events()
        older = self._older()
        self._schedule()
        self._links(len(shares))
        self._lost(older, len(shares))
        yield from map(with_names, in_batches(self._rows_of(shares), GROUP_ROWS))

    def _rows_of(self, shares: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of each share of the keys in turn.

        This way joined rows fit into memory.
        """
        for number, share in enumerate(shares, 1):
            self._narrow(share, *_DIVIDED)
            self._waves()
            if self.stores.config.schedule.sitemaps:
                self._narrow(share, "hints")
                self.engine.view("hinted", "crawldb/hinted")
            else:
                self.engine.values("hinted", table_of([], _HINTED))
            if not self.scores.looks_at_links:
                self.engine.view("base", "crawldb/base")
            self.scores.judge()
            self._define("needed", "met", *_STEPS_OF_ROWS)
            stage = (
                f"crawldb.update, {number} of {len(shares)}"
                if len(shares) > 1
                else "crawldb.update"
            )
            yield from self.engine.stream("crawldb/rows", GROUP_ROWS, stage)

    def _define(self, *steps: str) -> None:
        """Define views for the steps of a query.

        A step comes after the steps that it reads: a view in Spark keeps the views that it has read.
        """
        for step in steps:
            self.engine.view(step, f"crawldb/{step}")

    def _narrow(self, condition: str, *names: str) -> None:
        """Narrow tables to the rows under a condition."""
        for name in names:
            self.engine.define(name, f"select * from all_{name} where {condition}")

    def _captures(self) -> list[str]:
        """Give the engine the input tables.

        Returns the shares of the keys for the join.
        """
        engine = self.engine
        self.inputs.give(engine, "pages_given", "all_links")
        Versions(self.stores, CRAWLDB).give(self.parent, engine, "all_old")
        self.scores.scoring.read_pages(engine)
        self.work.keep(
            "texts", _SIGNATURES, self._signatures([segment for segment, _ in self.inputs.segments])
        )
        engine.values("outcomes", outcome_table())
        engine.values("there", numbered(map(str, self.inputs.there)))
        shares = (
            ["true"] if self.scores.looks_at_links else engine.shares(engine.value("crawldb/size"))
        )
        engine.view("captures", "crawldb/captures")
        self._narrow("true", "links", "old")
        return shares

    def _signatures(self, segments: Sequence[SegmentRef]) -> Iterator[pa.Table]:
        """Yield signatures of texts, if the config asks for them.

        Missing texts are extracted first. No digest of a table of texts is kept: Arrow reads them, which compares the
        checksums of pages.
        """
        if self.stores.config.crawldb.signature != "text":
            return
        extract_text(self.stores, segments)
        for number, segment in enumerate(segments):
            path, wanted = text_table(self.stores, segment), ("key", "time", "signature")
            for batch in parquet_batches(self.stores.storage, path, TEXT_SCHEMA, wanted, AGAIN):
                places = pa.repeat(pa.scalar(number, pa.int32()), len(batch))
                yield pa.Table.from_batches([batch.append_column("segment", places)])

    def _events(self) -> None:
        """Materialise the events, which are read often."""
        engine = self.engine
        named = named_rows(engine.rows("crawldb/named"))
        self.work.keep_rows("named", NAMED_SCHEMA, named)
        batches = engine.stream("crawldb/begun", GROUP_ROWS) if self.inputs.seeds else ()
        tables = (pa.Table.from_batches([batch]).cast(_BEGUN) for batch in batches)
        begun = [(row["name"], row["began"]) for table in tables for row in table.to_pylist()]
        self.work.keep_rows("seeds_given", SEEDS_SCHEMA, self.inputs.seed_rows(begun))
        self.scores.inject()
        self._narrow("true", "seeds")
        if self.inputs.seeds:
            engine.keep("linked", "crawldb/linked", "crawldb.seeds")
        else:
            engine.values("linked", table_of([], _LINKED))
        engine.view("happened", "crawldb/happened")
        engine.keep("repeated", "crawldb/repeated", "crawldb.captures")
        engine.keep("all_events", "crawldb/events", "crawldb.events")
        self._narrow("true", "events")

    def _older(self) -> list[SegmentRef]:
        """Return the segments whose captures were replaced, with other links."""
        there = {str(segment): segment for segment in self.inputs.there}
        names = self.engine.column("crawldb/lost_segments") if self.parent else []
        older = [there[name] for name in names if name in there]
        give_segments(self.stores, self.engine, "older_pages", older, Manifest.PAGES_NAME)
        self.engine.values("older_segments", numbered(map(str, older)))
        return older

    def _schedule(self) -> None:
        engine, config = self.engine, self.stores.config
        texts = engine.column("crawldb/metadata")
        kinds = Kinds(config.schedule.rules)
        rows = kinds.rows(engine.rows("crawldb/kinds")) if kinds.is_needed(texts) else iter(())
        self.work.keep_rows("kinds", KINDS_SCHEMA, rows)
        engine.values("limits", kinds.limits())
        engine.values("facts", facts_table(texts))
        engine.values("matrix", matrix_table())
        ranked = rank_of(self.parent) is not None
        engine.values("schedule", schedule_table(config, ranked=ranked))

    def _links(self, count: int) -> None:
        """Compute the facts of links for each target URL.

        `count`: the number of groups in which the segments are read.
        """
        engine = self.engine
        counted: dict[tuple[bytes, int], int] = {}
        hops_given = engine.rows("crawldb/hops") if engine.value("crawldb/any_hop") else ()
        rows = self.inputs.hop_rows(hops_given, counted)
        self.work.keep_rows("hops_found", HOPS_SCHEMA, rows)
        hops = [
            {"key": key, "segment": segment, "redirects": count}
            for (key, segment), count in counted.items()
        ]
        engine.values("counted", table_of(hops, COUNTED_SCHEMA))
        engine.values("standing", _STANDING.empty_table())
        engine.values("ended", _ENDED.empty_table())
        self._give()
        if self.scores.looks_at_links:  # it is read for each moment then
            self._waves()
            engine.keep("base", "crawldb/base", "crawldb.events")
        self.scores.share()
        self._rounds()
        needs = engine.value("crawldb/any_need")
        for number, group in enumerate(_groups(len(self.inputs.segments), count)):
            self._narrow(group, "links", "events")
            if needs:
                engine.view("needing", "crawldb/needing")
                engine.keep(
                    "needs_of_links", "crawldb/needs_of_links", "crawldb.links", more=number > 0
                )
            self._hand_on()
            if count == 1 and not self.scores.looks_at_links:
                engine.view("said", "crawldb/said")
            else:
                engine.keep("said", "crawldb/said", "crawldb.links", more=number > 0)
            if self.stores.config.schedule.sitemaps:
                engine.keep("all_hints", "crawldb/hints", "crawldb.links", more=number > 0)
        self._narrow("true", "events")
        self._hand_on()
        engine.view("all_found", "crawldb/found")
        self._needs(needs)

    def _needs(self, count: int) -> None:
        """Make the table `all_needs` of new captures' requisites.

        `count`: 0 if there are none.
        """
        engine = self.engine
        if not count:
            engine.values("all_needs", table_of([], NEEDS_SCHEMA))
            return
        engine.view("needing", "crawldb/needing")
        rows = self.inputs.requisite_rows(engine.rows("crawldb/moved_requisites"))
        self.work.keep_rows("needs_of_redirects", NEEDS_SCHEMA, rows)
        engine.define(
            "all_needs", "select * from needs_of_links union all select * from needs_of_redirects"
        )

    def _give(self) -> None:
        """Define new links and redirects, with the scores of the pages.

        The scores are those of the time when links and redirects were found.
        """
        self.engine.view("sources_given", "crawldb/sources")
        self.engine.view("hops_given", "crawldb/hopped")

    def _hand_on(self) -> None:
        """Define links and redirects again, with plug-ins' answers.

        A view must be made again after a change of its tables.
        """
        self._give()
        self.scores.hand_on()
        self.engine.view("followed", "crawldb/followed")

    def _rounds(self) -> None:
        """Compute `standing`, pages' scores in each round, and `ended`, the last.

        A single round without seeds keeps the scores of the version before.
        """
        engine, turns = self.engine, self.inputs.turns()
        if not turns or (turns[-1]["turn"] == 0 and not self.inputs.seeds):
            return
        engine.values("turns", table_of(turns, TURNS_SCHEMA))
        engine.values("seed_turns", table_of(self.inputs.seed_turns(turns), SEED_TURNS_SCHEMA))
        self._narrow("true", "seeds", "events")
        self._hand_on()
        marks = Marks()
        self.work.keep(
            "marks", MARKS_SCHEMA, marks.numbered(engine.stream("crawldb/marks", GROUP_ROWS))
        )
        steps = engine.stream("crawldb/steps", GROUP_ROWS, "crawldb.scores")
        self.work.keep("stood", STOOD_SCHEMA, marks.stood(self.stores.until_stopped(steps)))
        self.work.keep("left_over", LEFT_SCHEMA, marks.left())
        engine.keep("standing", "crawldb/standing", "crawldb.scores")
        engine.keep("ended", "crawldb/ended", "crawldb.scores")

    def _lost(self, older: Sequence[SegmentRef], count: int) -> None:
        """Define the links of replaced captures.

        `older`: the segments that have such captures.
        """
        engine = self.engine
        give_segments(self.stores, engine, "all_older_links", older, Manifest.LINKS_NAME)
        engine.keep("replaced", "crawldb/replaced", "crawldb.links")
        for number, group in enumerate(_groups(len(older), count)):
            self._narrow(group, "older_links")
            engine.keep("lost_links", "crawldb/lost_links", "crawldb.links", more=number > 0)
        engine.view("all_lost", "crawldb/lost")

    def _waves(self) -> None:
        """Apply all events but the last of each URL.

        The results are the views `before`, and `turn` with the last events.
        """
        engine, waves = self.engine, self.engine.value("crawldb/waves")
        engine.view("before", "crawldb/old")
        for place in range(1, waves):
            engine.values("wave", table_of([{"place": place}], columns("place int32")))
            engine.view("turn", "crawldb/turn")
            self._define(*_STEPS_OF_EVENTS)
            engine.keep(f"state_{place}", "crawldb/after", "crawldb.events")
            engine.define("states", f"select * from state_{place}")
            engine.view("before", "crawldb/before")
        if waves > 1:
            engine.define(
                "all_states",
                " union all ".join(f"select * from state_{one}" for one in range(1, waves)),
            )
            engine.view("states", "crawldb/states")
            engine.view("before", "crawldb/before")
        engine.view("turn", "crawldb/last_turn")
        self._define(*_STEPS_OF_EVENTS, "after")


def _groups(segments: int, count: int) -> list[str]:
    """Return conditions to divide tables into at most `count` groups.

    `segments`: their number in the tables. There are never more than `_MOST_GROUPS`.
    """
    if (count := min(count, segments, _MOST_GROUPS)) <= 1:
        return ["true"]
    ends = [segments * number // count for number in range(count + 1)]
    return [f"segment >= {first} and segment < {end}" for first, end in pairwise(ends)]


# A million hosts: keys are not in hosts' order, so with fewer nearly each URL would cost a look-up.
_domain_of = lru_cache(1 << 20)(domain_of.__wrapped__)


def with_names(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Add missing hosts and domains to rows."""
    found = dict(zip(batch.schema.names, batch.columns, strict=True))
    found["host"] = _filled(found["host"], found["url"], hosts_of)
    found["domain"] = _filled(found["domain"], found["host"], _domains_of)
    return pa.RecordBatch.from_arrays(list(found.values()), names=list(found))


def _filled(
    column: "pa.Array[Any]", of: "pa.Array[Any]", make: "Callable[[pa.Array[Any]], pa.Array[Any]]"
) -> "pa.Array[Any]":
    """Fill the nulls of a column from another column."""
    missing = column.is_null()
    filled: pa.Array[Any] = pc.replace_with_mask(column, missing, make(of.filter(missing)))
    return filled


def _domains_of(hosts: "pa.Array[Any]") -> "pa.Array[Any]":
    found = hosts.dictionary_encode()
    return pa.array(
        [_domain_of(str(host)) for host in found.dictionary.to_pylist()], pa.string()
    ).take(found.indices)
