"""The exports of a crawl: which there are, what the next one is called and takes in, and which are kept."""

import logging
import re
from collections.abc import Sequence
from contextlib import suppress

from crawl_lib.errors import (
    ConfigError,
    DamagedFileError,
    NoExportError,
    OutputConflictError,
    PathNotFoundError,
)
from crawl_lib.export.choice import NAME_PATTERN, SegmentInput, gather_inputs
from crawl_lib.export.folder import ExportFolder, list_exports
from crawl_lib.export.tables import WEB_GRAPH
from crawl_lib.segment import SegmentReader
from crawl_lib.stores import Stores

log = logging.getLogger(__name__)
_ENTRY = re.compile(r"newest \d+|\S+")


def newest_export(stores: Stores, having: Sequence[str] = ()) -> str:
    """Return the newest export.

    That is the largest time among exports named by an iteration, else the last by name.

    `having`: only those count that have these files: others may be made just now. Raises NoExportError if there is
    none: run `krake export` first.
    """
    names = [
        name
        for name in list_exports(stores)
        if not having or ExportFolder(stores, name).has(*having)
    ]
    if not names:
        what, command = (
            f" with {', '.join(having)}" if having else "",
            " and `krake graph link`" if having else "",
        )
        raise NoExportError(
            f"{stores.config.export.directory}: no export{what} yet; run `krake export`{command} first"
        )
    timed = [name for name in names if name.isdecimal()]
    return max(timed, key=int) if timed else names[-1]


def choose(
    stores: Stores,
    *,
    run_id: str | None = None,
    label: str | None = None,
    folders: Sequence[str] | None = None,
) -> tuple[str, list[SegmentInput]]:
    """Return an export's name and the segments it takes in.

    The name is the label or else the newest iteration.

    `folders`: just these iterations: names, `A..B` (both included), `newest 3`. Else all, but none that is younger than
    the last iteration of `run_id`: so that an export that is run again after later runs has the same inputs. Segments
    without pages and links are no inputs: where a run found nothing new, its export is the one that is there. Raises
    ConfigError naming a folder that is not there, and those that are, or a label that cannot be a name, or if there is
    neither label nor iteration.
    """
    crawl = stores.crawl
    chosen = crawl.folders()
    if folders:
        chosen = _folders_named(stores, folders)
    elif run_id is not None:
        newest_first = stores.until_stopped(reversed(chosen))
        last = next(
            (
                folder
                for folder in newest_first
                if crawl.folder(folder).iteration().run_id == run_id
            ),
            None,
        )
        chosen = chosen[: chosen.index(last) + 1] if last else chosen
    if label and not NAME_PATTERN.fullmatch(label):
        raise ConfigError(
            f"label {label!r}: use letters, digits, '.', '_' and '-', beginning with the first two"
        )
    if not label and not chosen:
        raise ConfigError(
            "there is no iteration to export; crawl first, or give the export a label"
        )
    segments = []
    for folder in stores.until_stopped(chosen):
        for node in crawl.folder(folder).segments():
            reader = SegmentReader(stores.storage, crawl.segment(folder, node).path)
            if reader.manifest.has_rows:
                segments.append(SegmentInput(folder, node, reader.path, reader.digest))
    return label or _name(stores, chosen, segments), segments


def _folders_named(stores: Stores, folders: Sequence[str]) -> list[str]:
    """Return the named iterations, oldest first.

    `folders`: names, `A..B` (from A to B, both included), `newest 3`. Raises ConfigError naming the entries that match
    no iteration, and the newest iterations.
    """
    there = stores.crawl.folders()
    chosen: set[str] = set()
    wrong = []
    for entry in _ENTRY.findall(" ".join(folders)):
        word, _, count = entry.partition(" ")
        first, dots, last = entry.partition("..")
        if count:
            found = there[-int(count) :] if int(count) else []
        elif dots and first.isdecimal() and last.isdecimal():
            found = [folder for folder in there if int(first) <= int(folder) <= int(last)]
        else:
            found = [folder for folder in there if folder == word]
        chosen.update(found)
        wrong += [] if found else [entry]
    if wrong:
        ways = "name some, or give FIRST..LAST, or `newest 3`"
        raise ConfigError(
            f"{stores.crawl.path}: no iteration {', '.join(wrong)}; {stores.crawl.listed()}; {ways}"
        )
    return sorted(chosen, key=int)


def _name(stores: Stores, chosen: Sequence[str], segments: Sequence[SegmentInput]) -> str:
    """Return the name of an export without a label.

    Its newest iteration; or a later, empty one, if the export of that name has other segments (one of them came late,
    or lost pages since).
    """
    inputs = gather_inputs(stores, segments)
    for name in chosen[chosen.index(segments[-1].folder) if segments else 0 :]:
        with suppress(OutputConflictError):
            _, late = ExportFolder(stores, name).begun(inputs)
            if not late:
                return name
    return chosen[-1]


def remove_older(stores: Stores, finished: str) -> list[str]:
    """Delete unlabelled exports beyond the newest `export.keep`.

    Return their names. Incomplete exports do not count.

    `finished`: the export that a run has just made, which stays in any case. So do those that are not whole: a task may
    work on them, or goes on with them. One that is deleted is gone in one step; killed, this is run again.
    """
    if stores.config.export.keep is None:
        return []
    folders = stores.crawl.folders()
    exports = [ExportFolder(stores, name) for name in list_exports(stores)]
    timed = [export for export in exports if export.has(WEB_GRAPH) and _is_timed(export, folders)]
    newest_first = sorted((export.name for export in timed), key=int, reverse=True)
    removed = [name for name in newest_first[stores.config.export.keep :] if name != finished]
    for name in stores.until_stopped(removed):
        stores.storage.delete(ExportFolder(stores, name).path)
        log.info("export %s was deleted: export.keep is %s", name, stores.config.export.keep)
    return removed


def _is_timed(export: ExportFolder, folders: Sequence[str]) -> bool:
    """Say whether an iteration named an export.

    The iteration may be deleted by now, and a label may be of digits too.
    """
    if not export.name.isdecimal() or export.name in folders:
        return export.name.isdecimal()
    with suppress(PathNotFoundError, DamagedFileError):
        return any(segment.folder == export.name for segment in export.read_inputs().segments)
    return False
