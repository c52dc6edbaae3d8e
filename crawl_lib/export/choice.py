"""Which segments an export takes in, and what it is called."""

from collections.abc import Sequence

from crawl_lib.errors import ConfigError, PathNotFoundError
from crawl_lib.export.folder import NAME_PATTERN, SegmentInput
from crawl_lib.stores import Stores


def choose_folders(stores: Stores, *, run_id: str | None, folders: Sequence[str] | None) -> list[str]:
    """The iterations that an export takes in, oldest first.

    `folders`: just these. Else all, but none that is younger than the last iteration of `run_id`: so that an export
    that is run again after later runs has the same inputs. Raises ConfigError naming a folder that is not there.
    """
    there = stores.crawl.folders()
    if folders:
        missing = [folder for folder in folders if folder not in there]
        if missing:
            raise ConfigError(f"{stores.crawl.path}: no iteration {', '.join(missing)}; there are {_named(there)}")
        return sorted(set(folders), key=int)
    last = _last_of(stores, there, run_id)
    return [folder for folder in there if last is None or int(folder) <= int(last)]


def _named(folders: list[str]) -> str:
    return f"{', '.join(folders[-10:])} ({len(folders)} in all)" if folders else "none yet"


def _last_of(stores: Stores, there: list[str], run_id: str | None) -> str | None:
    if run_id is None:
        return None
    for folder in stores.until_stopped(reversed(there)):
        if stores.crawl.folder(folder).iteration().run_id == run_id:
            return folder
    return None


def segment_inputs(stores: Stores, folders: Sequence[str]) -> list[SegmentInput]:
    """The segments in these folders, by folder, then node."""
    return [
        SegmentInput(folder=folder, node=node, path=stores.crawl.segment(folder, node).path)
        for folder in stores.until_stopped(folders)
        for node in stores.crawl.folder(folder).segments()
    ]


def export_name(folders: Sequence[str], label: str | None) -> str:
    """The export's folder: the label, else its newest iteration. Raises ConfigError if it has neither."""
    if label:
        if not NAME_PATTERN.fullmatch(label):
            raise ConfigError(f"label {label!r}: use letters, digits, '.', '_' and '-', beginning with the first two")
        return label
    if not folders:
        raise ConfigError("there is no iteration to export; crawl first, or give the export a label")
    return max(folders, key=int)


def newest_export(stores: Stores) -> str:
    """The export that was made last: the largest time among those named by an iteration, else the last by name.

    Raises PathNotFoundError if there is none: run `krake export` first.
    """
    names = list_exports(stores)
    if not names:
        raise PathNotFoundError(f"{stores.config.export.directory}: no export yet; run `krake export` first")
    timed = [name for name in names if name.isdecimal()]
    return max(timed, key=int) if timed else names[-1]


def list_exports(stores: Stores) -> list[str]:
    """Names of the exports, sorted."""
    path = stores.config.export.directory.strip("/")
    if not stores.storage.exists(path):
        return []
    return sorted(entry.name for entry in stores.storage.list(path) if entry.is_dir and not entry.name.startswith("."))
