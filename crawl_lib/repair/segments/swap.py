"""Putting a repaired segment in the place of the old segment.

A folder cannot be replaced in one step, so the decision is a file, `<folder>/.swap-<node>.json`, written when the new
segment is whole on the store, under a hidden name. Its steps may be carried out twice:

1. the old segment is renamed to a hidden name (`repair.swap.aside`);
2. the new segment takes the place (`repair.swap.placed`);
3. the old segment is deleted, unless it is to be kept; the folder's index is written again (`repair.swap.indexed`),
   since other parts of `outlinks` may lie elsewhere now; then the decision is deleted.

After a kill between two steps, `finish_swaps` goes on: each repair tool calls this function first. Between 1 and 2
there is no segment; meanwhile the decision makes a crawl task of the segment refuse to make another segment.
"""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from crawl_lib.crawldir import FileName, Folder, SegmentRef
from crawl_lib.durable import reached
from crawl_lib.errors import DamagedFileError
from crawl_lib.rounds import refresh_index
from crawl_lib.sealed import MANIFEST_FILE, sealed_json, unsealed
from crawl_lib.segment import HiddenFolder, Manifest, check_segment
from crawl_lib.stores import Stores

COMPACTED_PREFIX = ".compacted-"
"""The prefix of an old segment that is deleted; a kept segment has `DAMAGED_PREFIX`."""
_SWAP = re.compile(rf"{re.escape(FileName.SWAP_PREFIX)}(.+){re.escape(FileName.SWAP_SUFFIX)}")
_ASIDE = re.compile(
    rf"(?:{re.escape(FileName.DAMAGED_PREFIX)}|{re.escape(COMPACTED_PREFIX)})(.+)-(\d+)"
)


@dataclass(frozen=True)
class Swap:
    """A decision: `new` takes the place of `node`, which becomes `old`. All are names in the iteration's folder.
    `keep_old`: whether the old segment stays, under this name."""

    node: str
    new: str
    old: str
    keep_old: bool


def swap_files(folder: Folder) -> list[tuple[str, str]]:
    """Return the unfinished decisions of a folder.

    Each has the node and the name of the file.
    """
    found = [_SWAP.fullmatch(name) for name in _entries(folder)]
    return [(match[1], match[0]) for match in found if match]


def read_swap(folder: Folder, name: str) -> Swap:
    """Read the decision in a file of a folder.

    Raises DamagedFileError naming the file.
    """
    where = folder.at(name)
    try:
        return Swap(**unsealed(folder.crawl.storage.read_bytes(where)))
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedFileError(
            f"{where}: not a decision of a repair: {error!r}; run `krake fsck --repair`"
        ) from error


def all_aside(folder: Folder) -> list[tuple[str, str]]:
    """Return all segments of a folder that were set aside, newest first.

    Each has the node and the name.
    """
    found = [_ASIDE.fullmatch(name) for name in _entries(folder)]
    aside = [(int(match[2]), match[1], match[0]) for match in found if match]
    return [(node, name) for _, node, name in sorted(aside, reverse=True)]


def new_segments(folder: Folder, node: str) -> list[str]:
    """Return the segments that repairs made and have not yet swapped in."""
    # Only these: the hidden folder of a take of a node `new-...` begins alike, and holds the only copy of its records.
    new = re.compile(re.escape(f".new-{node}-") + "[0-9a-f]{16}")
    return [name for name in _entries(folder) if new.fullmatch(name)]


def _entries(folder: Folder) -> list[str]:
    return [entry.name for entry in folder.crawl.storage.list(folder.path)]


def replace_segment(
    stores: Stores,
    segment: SegmentRef,
    built: Path,
    *,
    carried: Sequence[str] = (),
    keep_old: bool,
    clock: Callable[[], float] = time.time,
) -> str:
    """Replace a segment by a built one.

    Returns the name of the old segment, "" if it was deleted.

    `built`: a folder as `build_segment` leaves it. `carried`: small files of the old segment for the new segment too,
    though no manifest lists the files. The caller holds the node's lock, if the node is of this machine, and has called
    `finish_swaps`. Raises StorageError; run the tool again then.
    """
    storage, node, folder = stores.storage, segment.node, stores.crawl.folder(segment.folder)
    new = f".new-{node}-{Manifest.entry_of(built / MANIFEST_FILE).sha256[:16]}"
    for name in new_segments(folder, node):
        if name != new:
            storage.delete(folder.at(name))  # of a killed attempt
    HiddenFolder(storage, folder.at(new)).upload(built)
    for name in carried:
        storage.write_bytes(
            folder.at(f"{new}/{name}"), storage.read_bytes(f"{segment.path}/{name}")
        )
    reached("repair.swap.uploaded")
    newest = [int(name.rpartition("-")[2]) for _, name in all_aside(folder)[:1]]
    number = max(
        int(clock()), *(taken + 1 for taken in newest), 0
    )  # two repairs may fall into one second
    swap = Swap(
        node,
        new,
        f"{FileName.DAMAGED_PREFIX if keep_old else COMPACTED_PREFIX}{node}-{number}",
        keep_old,
    )
    storage.write_bytes(
        folder.at(f"{FileName.SWAP_PREFIX}{node}{FileName.SWAP_SUFFIX}"), sealed_json(asdict(swap))
    )
    reached("repair.swap.decided")
    _carry_out(stores, folder, swap)
    return swap.old if keep_old else ""


def finish_swaps(stores: Stores, folder_name: str) -> None:
    """Finish the decided swaps of a killed repair of a folder.

    Raises DamagedFileError naming a malformed decision. A damaged new segment does not replace an existing one: the
    decision is dropped.
    """
    storage, folder = stores.storage, stores.crawl.folder(folder_name)
    for _, name in stores.until_stopped(swap_files(folder)):
        swap = read_swap(folder, name)
        both = storage.exists(folder.at(swap.new)) and storage.exists(folder.at(swap.node))
        findings = check_segment(storage, folder.at(swap.new), work=stores) if both else []
        if any(
            one.name != "manifest_foreign" for one in findings
        ):  # the new name is hidden until now
            storage.delete(folder.at(name))
        else:
            _carry_out(stores, folder, swap)


def finish_all_swaps(stores: Stores) -> None:
    """Finish the swaps of all folders.

    Tools that look for segments would miss a segment that was set aside.
    """
    for folder in stores.until_stopped(stores.crawl.folders()):
        finish_swaps(stores, folder)


def _carry_out(stores: Stores, folder: Folder, swap: Swap) -> None:
    storage = stores.storage
    target, new, old = folder.at(swap.node), folder.at(swap.new), folder.at(swap.old)
    if storage.exists(new):
        if storage.exists(target):
            storage.rename(target, old)
        reached("repair.swap.aside")
        storage.rename(new, target)
    reached("repair.swap.placed")
    if not swap.keep_old:
        storage.delete(old)
    refresh_index(stores, folder.name)
    reached("repair.swap.indexed")
    storage.delete(folder.at(f"{FileName.SWAP_PREFIX}{swap.node}{FileName.SWAP_SUFFIX}"))
