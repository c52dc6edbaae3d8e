"""From a spool of closed parts to the files of a segment, streaming."""

import os
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

import pyarrow as pa

from crawl_lib.durable import fsync_dir, fsync_file, reached, write_durable
from crawl_lib.errors import DamagedFileError, StorageError, os_errors
from crawl_lib.records import QueuedUrl
from crawl_lib.sealed import MANIFEST_FILE
from crawl_lib.segment.manifest import Manifest
from crawl_lib.segment.parts import INDEX_RUNS, OUTLINK_RUNS, Part, PartCounts, Spool
from crawl_lib.segment.runs import OutlinkRuns, merge_many, merge_outlinks
from crawl_lib.segment.schema import LINKS_SCHEMA, PAGES_SCHEMA
from crawl_lib.segment.tables import read_blocks, write_parquet
from crawl_lib.urlfiles import OUTLINKS_NAME, OutlinkWriter, metadata_and_tries
from crawl_lib.warc import utc_text

SCRATCH_NAME = ".scratch"


def build_segment(
    spool: Path,
    out_dir: Path,
    facts: Manifest,
    nodes: Sequence[str],
    *,
    handed_on: Iterable[tuple[str, QueuedUrl, str]] = (),
    more_files: Sequence[Path] = (),
    puts_back: bool = True,
) -> Manifest:
    """Write all files of a segment into `out_dir`, the manifest last.

    After a kill, run it again: it starts again, or finds the segment complete. If no URL was taken, there are no tables
    and no index: the manifest is all, with `more_files`, and `outlinks` if URLs are handed on.

    `spool`: closed parts of all workers (a missing folder is a node with nothing to fetch). `facts`: what is known of
    the segment besides; not `finished`: now; `queue_after` without what is tried again. `nodes`: all, in the order of
    the owners' indexes. `handed_on`: owner, URL and flags of what comes before all that the pages lead to. `puts_back`:
    whether failures that pass are in the queue again. `more_files`: what else belongs to the segment. The WARC file of
    a sealed part is on the store already: the manifest names it by its seal. Others are linked, not copied, where the
    disk allows. Raises StorageError naming a part that is still open, DamagedFileError if the sums do not agree.
    """
    done = read_built(out_dir)
    if done is not None and done.take_id == facts.take_id:
        return done
    parts = Spool(spool).parts()
    counts, scope_added = _checked_counts(parts, facts)
    with os_errors(out_dir):
        shutil.rmtree(out_dir, ignore_errors=True)
        (out_dir / SCRATCH_NAME).mkdir(parents=True)
        again, has_tables = 0, bool(parts or facts.counts["taken"])
        if has_tables:
            counts["links"], again = _write_tables(parts, out_dir, counts)
            _write_index(parts, out_dir)
        outlinks = _write_outlinks(parts, out_dir, nodes, handed_on)
        if not has_tables and not outlinks.parts:
            (out_dir / OUTLINKS_NAME).unlink()
        shutil.rmtree(out_dir / SCRATCH_NAME)
        seals = {part: part.sealed() for part in parts}
        ids = {part.warc.name: part.counts().warcinfo_id for part in parts}
        for path in [*(part.warc for part in parts if seals[part] is None), *more_files]:
            _link_or_copy(path, out_dir / path.name)
        fsync_dir(out_dir)
        reached("segment.build.files")
        files = [*filter(None, seals.values()), *map(Manifest.entry_of, out_dir.iterdir())]
        manifest = replace(
            facts,
            finished=facts.finished or utc_text(time.time()),
            queue_after=None
            if facts.queue_after is None
            else facts.queue_after + again * puts_back,
            counts=counts | {"outlinks": sum(part.count for part in outlinks.parts.values())},
            scope_added=scope_added,
            files=sorted(files, key=attrgetter("name")),
            warcinfo_ids={name: value for name, value in ids.items() if value},
            outlinks=outlinks.to_mapping(),
        )
        write_durable(out_dir / MANIFEST_FILE, manifest.to_bytes())
    reached("segment.build.manifest")
    return manifest


def read_built(out_dir: Path) -> Manifest | None:
    """Read the manifest of a finished build, None without one.

    Raises DamagedFileError, StorageError.
    """
    path = out_dir / MANIFEST_FILE
    with os_errors(path):
        return Manifest.from_bytes(path.read_bytes(), str(path)) if path.exists() else None


def built_problem(folder: Path, *, full: bool) -> str:
    """Say why a built segment cannot be sent.

    "": it can be sent, or its build is unfinished.
    """
    try:
        manifest = read_built(folder)
    except DamagedFileError as error:
        return str(error)
    for entry in manifest.files if manifest else ():
        file = folder / entry.name
        if file.exists() and (
            file.stat().st_size != entry.size_bytes or (full and Manifest.entry_of(file) != entry)
        ):
            return f"`{file.name}` is not what was built"
    return ""


def _checked_counts(parts: list[Part], facts: Manifest) -> tuple[dict[str, Any], list[str]]:
    """Return the sums of all parts, and hosts that join the scope.

    Raises StorageError or DamagedFileError where they cannot be those of the take.
    """
    notes: list[PartCounts] = []
    taken, deferred = facts.counts["taken"], facts.counts["deferred"]
    gone = {name: count for name in ("lost", "dropped") if (count := facts.counts.get(name))}
    seen = bytearray(taken)
    for part in parts:
        if not part.is_closed:
            raise StorageError(
                f"{part.warc}: is still open; run the crawl task of node {facts.node} again"
            )
        part.require_whole()
        notes.append(part.counts())
        for position in part.positions():
            if position >= taken or seen[position]:
                raise DamagedFileError(
                    f"{part.warc}: position {position} of {taken} taken URLs comes twice or late"
                )
            seen[position] = 1
    pages, outcomes = (
        sum(note.pages for note in notes),
        sum((note.outcomes for note in notes), Counter[str]()),
    )
    if pages != outcomes.total() or pages != sum(seen):
        raise DamagedFileError(f"{facts.node}: {pages} rows of pages, but {sum(seen)} fetched URLs")
    if taken != pages + deferred + sum(gone.values()):
        raise DamagedFileError(
            f"{facts.node}: {taken} URLs were taken, but {pages} fetched and {deferred} deferred"
        )
    counts = gone | {
        "taken": taken,
        "outcomes": _sorted(outcomes),
        "retried": _sorted(sum((note.retried for note in notes), Counter[str]())),
        "deferred": deferred,
        "passed_over": facts.counts.get("passed_over", 0),
        "pages": pages,
        "links": sum(note.links for note in notes),
        "robots_captures": sum(note.robots_captures for note in notes),
        "rejections": _sorted(sum((note.rejections for note in notes), Counter[str]())),
    }
    if rule_errors := sum((note.rule_errors for note in notes), Counter[str]()):
        counts["rule_errors"] = _sorted(rule_errors)
    if waiting := facts.counts.get("requisites", 0) + sum(note.requisites for note in notes):
        counts["requisites"] = waiting
    return counts, sorted(set(facts.scope_added).union(*(note.scope_hosts for note in notes)))


def _sorted(counter: Counter[str]) -> dict[str, int]:
    return dict(sorted(counter.items()))


def _write_tables(parts: list[Part], out_dir: Path, counts: dict[str, Any]) -> tuple[int, int]:
    """Write both tables.

    Returns the number of links, and the number of pages that are tried again.
    """
    again = 0

    def blocks(suffix: str) -> Iterator[pa.RecordBatch]:
        nonlocal again
        for block in chain.from_iterable(read_blocks(part.path(suffix)) for part in parts):
            # Older spools lack the column.
            if suffix == Part.PAGES_SUFFIX and "retry_at" in block.schema.names:
                again += block.num_rows - block.column("retry_at").null_count
            yield block

    pages = write_parquet(out_dir / Manifest.PAGES_NAME, PAGES_SCHEMA, blocks(Part.PAGES_SUFFIX))
    links = write_parquet(out_dir / Manifest.LINKS_NAME, LINKS_SCHEMA, blocks(Part.LINKS_SUFFIX))
    if (pages, links) != (counts["pages"], counts["links"]):
        raise DamagedFileError(
            f"{out_dir}: {pages} pages and {links} links written, counted were {counts}"
        )
    reached("segment.build.tables")
    return links, again


def _write_index(parts: list[Part], out_dir: Path) -> None:
    runs = [run for part in parts for run in part.runs(INDEX_RUNS)]
    with (out_dir / Manifest.INDEX_NAME).open("wb") as file:
        file.writelines(merge_many(runs, out_dir / SCRATCH_NAME))
        fsync_file(file)


def _write_outlinks(
    parts: list[Part],
    out_dir: Path,
    nodes: Sequence[str],
    handed_on: Iterable[tuple[str, QueuedUrl, str]],
) -> OutlinkWriter:
    scratch = out_dir / SCRATCH_NAME
    first = OutlinkRuns(scratch / "handed-on")
    for number, (owner, url, flags) in enumerate(handed_on):
        fields = (url.url, url.via, url.depth, url.hops, metadata_and_tries(url))
        first.add(nodes.index(owner), 0, number, fields, flags)
    first.flush()
    runs = [*first.paths, *chain.from_iterable(part.runs(OUTLINK_RUNS) for part in parts)]
    with (out_dir / OUTLINKS_NAME).open("wb") as file:
        outlinks = merge_outlinks(file, runs, nodes, scratch)
        fsync_file(file)
    reached("segment.build.outlinks")
    return outlinks


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, target)
        with target.open("rb") as file:
            os.fsync(file.fileno())
