"""The iterations that hold imported archives: which archives they have, and the last steps of an import."""

from __future__ import annotations

from collections.abc import Iterator

from crawl_lib.crawldir import IMPORT_NODE, INDEX_FILE, MANIFEST_FILE, read_json
from crawl_lib.durable import reached
from crawl_lib.node import mark_pages
from crawl_lib.rounds import commit_iteration
from crawl_lib.stores import Stores


def _import_folders(stores: Stores) -> Iterator[str]:
    """Folders whose imported segment stands."""
    for folder in stores.crawl.folders():
        if IMPORT_NODE in stores.crawl.folder(folder).segments():
            yield folder


def unfinished_imports(stores: Stores) -> list[str]:
    """Those whose keys may not be marked yet."""
    return [
        folder for folder in _import_folders(stores) if not stores.storage.exists(stores.crawl.at(folder, INDEX_FILE))
    ]


def imported_archives(stores: Stores) -> set[str]:
    """SHA-256 of all archives that were imported."""
    found: set[str] = set()
    for folder in _import_folders(stores):
        manifest = read_json(stores.storage, f"{stores.crawl.path}/{folder}/{IMPORT_NODE}/{MANIFEST_FILE}")
        for entry in manifest.get("history", ()):
            found.update(file["sha256"] for file in entry.get("files", ()))
    return found


def finish_import(stores: Stores, folder: str) -> None:
    """Steps 4 and 5."""
    mark_pages(stores, stores.crawl.segment(folder, IMPORT_NODE).path)
    reached("repair.import.marked")
    iteration = stores.crawl.folder(folder).iteration()
    commit_iteration(stores, run_id=iteration.run_id, iteration=iteration.iteration)
