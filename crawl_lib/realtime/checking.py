"""`krake fsck` for the real-time service: parts and notes in `live/`, and the table `krakepages`.

A repair reads a damaged part as far as possible, and closes the part again; the damaged WARC file stays in
`live/<fetcher>/damaged`. Only `krake realtime fill` makes a damaged or missing table again: waiting rows are lost then.
"""

import shutil
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from crawl_lib.durable import delete_durable, fsync_dir, reached
from crawl_lib.errors import (
    DamagedFileError,
    KeyServerDownError,
    KeyStoreError,
    LockedError,
    StorageError,
    os_errors,
)
from crawl_lib.findings import Finding, Findings, Severity
from crawl_lib.frontier import NodeDirectory, NodeLock
from crawl_lib.realtime.collect import read_run, write_run_again
from crawl_lib.realtime.places import RUN_FILE
from crawl_lib.realtime.rows import page_servers
from crawl_lib.segment import Part, PartWriter, Spool, WarcInfo, built_problem
from crawl_lib.stores import Stores
from crawl_lib.version import VERSION

_FILL = "stop the service, and run `krake realtime fill`"


def check_live(stores: Stores, *, full: bool) -> tuple[list[Finding], int]:
    """Check the service's files and table; count the parts.

    `full`: every byte is read. The service may run meanwhile. Raises StorageError, StoppedError.
    """
    findings, count = Findings("queue", "run `krake fsck --repair`"), 0
    for folder in _fetchers(stores):
        for part in _parts(folder) if full else ():
            count += 1
            stores.go_on()
            if problem := _problem(part):
                findings.add("live_part_damaged", str(part.warc), problem)
        for where, problem in (_run_problem(folder), _built_problem(folder, full=full)):
            if problem:
                findings.add("live_run_damaged", where, problem)
    if _fetchers(stores):  # the service works here
        _check_table(stores, findings, count)
    return findings.list(), count


def _check_table(stores: Stores, findings: Findings, count: int) -> None:
    try:
        with page_servers(stores) as servers:
            for server in servers:
                if problem := server.problem():
                    findings.add("pages_damaged", server.name, problem, repair=_FILL)
            if count and not servers:
                where, problem = (
                    ", ".join(stores.config.key_storage.servers),
                    "the table krakepages is not there",
                )
                findings.add(
                    "pages_missing", where, problem, repair=_FILL, severity=Severity.WARNING
                )
    except KeyServerDownError as error:
        again = "bring the key server back, and run `krake fsck` again"
        findings.add("pages_not_checked", "krakepages", str(error), repair=again)
    except KeyStoreError as error:
        findings.add("pages_damaged", "krakepages", str(error), repair=_FILL)


def repair_live(stores: Stores, *, say: Callable[[str], None], dry_run: bool) -> list[str]:
    """Repair parts and notes; return what was left out, and why.

    A damaged part is closed again, as far as its records can be read. `say`: told each line. Raises StorageError,
    StoppedError.
    """
    node = stores.config.servers[0]
    folders = _fetchers(stores)
    if not folders:
        return []
    try:
        with NodeLock(
            stores.node_dir(node), node, 0.0, what="krake fsck --repair", leaves_trace=not dry_run
        ):
            for folder in folders:
                for line, act in _repairs(stores, folder):
                    say(line)
                    if not dry_run:
                        act()
    except LockedError as error:
        return [str(error)]
    return []


def _repairs(stores: Stores, folder: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the repairs of a fetcher, a line and an act each."""
    for part in _parts(folder):
        if _problem(part):
            line = f"{part.warc}: closed again, as far as its records can be read; the damaged file is kept"
            yield line, partial(_close_again, stores, folder, part)
    where, problem = _run_problem(folder)
    if problem:
        yield (
            f"{where}: written again, with the parts that are there",
            partial(write_run_again, folder / "collect"),
        )
    where, problem = _built_problem(folder, full=True)
    if problem:
        yield (
            f"{where}: deleted; the next collection builds the segment again",
            partial(shutil.rmtree, where),
        )


def _run_problem(folder: Path) -> tuple[str, str]:
    path = folder / "collect" / RUN_FILE
    try:
        read_run(path)
    except DamagedFileError as error:
        return str(path), str(error)
    return str(path), ""


def _built_problem(folder: Path, *, full: bool) -> tuple[str, str]:
    built = folder / "collect" / "segment"
    return str(built), built_problem(built, full=full)


def _fetchers(stores: Stores) -> list[Path]:
    """Return the folders of the fetchers of this machine."""
    live = NodeDirectory(stores.node_dir(stores.config.servers[0])).live
    return sorted(folder for folder in live.iterdir() if folder.is_dir()) if live.is_dir() else []


def _parts(folder: Path) -> Iterator[Part]:
    """Yield the closed parts of a fetcher.

    Parts in the hands of a collection are among them, and may have rows.
    """
    for spool in (folder / "spool", folder / "collect" / "spool"):
        if spool.is_dir():
            yield from (part for part in Spool(spool).parts() if part.is_rowless or part.is_closed)


def _problem(part: Part) -> str:
    try:
        if part.is_closed:  # with rows, by a collection
            part.require_whole()
        else:
            part.require_log()
    except (DamagedFileError, StorageError) as error:
        return str(error)
    except FileNotFoundError:  # collected at this moment
        return ""
    return ""


def _close_again(stores: Stores, fetcher: Path, part: Part) -> None:
    """Close a damaged part again, without rows.

    The part ends behind its last readable record. The damaged file is kept.
    """
    spool, folder = part.warc.parent, fetcher / "damaged"
    with os_errors(part.warc, "cannot be repaired"):
        if part.warc.exists():
            folder.mkdir(exist_ok=True)
            if not (folder / part.warc.name).exists():
                shutil.copyfile(part.warc, folder / part.warc.name)
                fsync_dir(folder)
        for suffix in (Part.ROWLESS_SUFFIX, Part.CLOSED_SUFFIX):
            delete_durable(part.path(suffix))
        reached("realtime.repair.opened")
    if part.warc.exists():
        prefix, info = (
            part.stem.name.rpartition("-")[0],
            WarcInfo(VERSION, stores.config_digest, "", ""),
        )
        with PartWriter(spool, prefix, info, stores.config.segment, has_rows=False) as writer:
            deque(writer.recovered(), 0)
