"""Exports as an output: damaged exports, leftover files, and the exports with a page."""

from collections.abc import Iterator
from contextlib import suppress

from crawl_lib.derived import SEGMENTS, Output, PagePlace, Pages, replaced_in
from crawl_lib.errors import KrakeError
from crawl_lib.export import ExportFolder, list_exports
from crawl_lib.findings import Finding
from crawl_lib.graph.check import check_export
from crawl_lib.stores import Stores


class ExportOutput(Output):
    """All exports of a crawl."""

    def paths(self, stores: Stores) -> list[str]:
        """Name the folders of all exports."""
        return [ExportFolder(stores, name).path for name in list_exports(stores)]

    def count(self, stores: Stores) -> int:
        """Count the exports."""
        return len(list_exports(stores))

    def check(self, stores: Stores, *, full: bool) -> list[Finding]:
        """Find damage in all exports."""
        return [
            one for name in list_exports(stores) for one in check_export(stores, name, full=full)
        ]

    def leftovers(self, stores: Stores) -> Iterator[tuple[str, str]]:
        """Find hidden names in the folder of exports, and in each export."""
        for folder in (stores.config.export.directory.strip("/"), *self.paths(stores)):
            yield from replaced_in(stores, folder)

    def places_of(self, stores: Stores, pages: Pages) -> Iterator[PagePlace]:
        """Find exports of a segment that had one of these pages."""
        segments = {name for names in pages.values() for name in names}
        for name in list_exports(stores):
            with suppress(KrakeError):
                export = ExportFolder(stores, name)
                inputs = export.read_inputs().segments
                if any(f"{segment.folder}/{segment.node}" in segments for segment in inputs):
                    yield PagePlace(export.path, "make a new export, and delete this one")


EXPORTS_OUTPUT = ExportOutput("exports", (SEGMENTS,))
