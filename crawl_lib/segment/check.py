"""`krake fsck` of segments: is a segment what its manifest says, and do tables, index and WARC files agree?

Fast: sizes and counts, from the manifest, the folder and the footers of the tables. Full: also what `fsck_records`
looks at.
"""

from __future__ import annotations

from crawl_lib.errors import DamagedFileError, PathNotFoundError
from crawl_lib.findings import Finding, Findings, Severity
from crawl_lib.frontier import part_mapping
from crawl_lib.segment.check_records import OUTCOMES, RecordsCheck, SegmentPlace, file_entries
from crawl_lib.segment.dropped import encode_dropped, is_dropped_file, read_dropped
from crawl_lib.segment.manifest import LINKS_NAME, MANIFEST_NAME, OUTLINKS_NAME, PAGES_NAME, Manifest
from crawl_lib.segment.reader import SCHEMAS
from crawl_lib.segment.tables import open_parquet
from crawl_lib.stopping import OnProgress
from crawl_lib.storage import Storage

ROOM = "segment"
ACCOUNTED = ("deferred", "dropped", "lost")
"""Counts of taken URLs that have no row in `pages`."""


def check_segment(
    storage: Storage, path: str, *, full: bool = True, on_progress: OnProgress | None = None
) -> list[Finding]:
    """What is wrong with one segment; nothing is changed. `path`: its folder, `<crawl>/<folder>/<node>`.

    Raises StorageError only where the store itself fails.
    """
    return _Check(storage, path, on_progress).run(full=full)


class _Check:
    def __init__(self, storage: Storage, path: str, on_progress: OnProgress | None) -> None:
        name = "/".join(path.split("/")[-2:])
        self.findings = Findings(ROOM, f"run `krake segment salvage {name}`")
        self.place = SegmentPlace(storage, path, self.findings, on_progress)

    def run(self, *, full: bool) -> list[Finding]:
        manifest = self._manifest()
        if manifest is not None:
            self._files(manifest)
            self._counts(manifest)
            self._table_rows(manifest)
            self._outlink_parts(manifest)
            if full:
                RecordsCheck(self.place).run(manifest)
        return self.findings.list()

    def _manifest(self) -> Manifest | None:
        where = self.place.file(MANIFEST_NAME)
        try:
            manifest = Manifest.from_bytes(self.place.storage.read_bytes(where), where)
        except PathNotFoundError:
            self.findings.add("manifest_missing", where, "is not there")
            return None
        except DamagedFileError as error:
            self.findings.add("manifest_damaged", where, str(error))
            return None
        folder, node = self.place.path.split("/")[-2:]
        if (manifest.folder, manifest.node) != (folder, node):
            self.findings.add(
                "manifest_foreign",
                where,
                f"is of {manifest.folder}/{manifest.node}",
                repair=f"move the folder to where it belongs, or run `krake segment salvage {folder}/{node}`",
            )
        return manifest

    def _files(self, manifest: Manifest) -> None:
        standing = {entry.name: entry for entry in self.place.storage.list(self.place.path)}
        for entry in file_entries(manifest):
            found = standing.pop(entry["name"], None)
            where = self.place.file(entry["name"])
            if found is None:
                self.place.rubbish.add(entry["name"])
                self.findings.add("file_missing", where, "the manifest lists it, and it is not there")
            elif found.size_bytes != entry["size_bytes"]:
                self.findings.add(
                    "file_size", where, f"has {found.size_bytes:,} bytes, the manifest says {entry['size_bytes']:,}"
                )
        for name in standing.keys() - {MANIFEST_NAME}:
            if is_dropped_file(name):
                self._dropped(name)
                continue
            self.findings.add(
                "file_unknown",
                self.place.file(name),
                "the manifest does not list it",
                repair="no stage reads it: delete it",
                severity=Severity.WARNING,
            )

    def _dropped(self, name: str) -> None:
        """A list of dropped pages is named by its digest."""
        try:
            whole = encode_dropped(read_dropped(self.place.storage, self.place.path, [name]))[0] == name
        except DamagedFileError:
            whole = False
        if not whole:
            self.findings.add(
                "dropped_damaged",
                self.place.file(name),
                "is not the list of pages that was written",
                repair="delete it, and run `krake segment drop` for its pages again",
            )

    def _counts(self, manifest: Manifest) -> None:
        counts, where = manifest.counts, self.place.file(MANIFEST_NAME)
        try:
            fetched = sum(counts["outcomes"].values())
            accounted = fetched + sum(counts.get(name, 0) for name in ACCOUNTED)
            unknown = sorted(counts["outcomes"].keys() - OUTCOMES)
            wrong = [
                (counts["taken"] != accounted, f"{counts['taken']} URLs were taken, {accounted} are accounted for"),
                (counts["pages"] != fetched, f"{counts['pages']} pages, and outcomes of {fetched}"),
                (bool(unknown), f"outcomes that nobody knows: {', '.join(unknown)}"),
            ]
        except (KeyError, TypeError, AttributeError) as error:
            wrong = [(True, f"its counts cannot be used: {error!r}")]
        for is_wrong, problem in wrong:
            if is_wrong:
                self.findings.add("counts_differ", where, problem)

    def _table_rows(self, manifest: Manifest) -> None:
        for name, count in ((PAGES_NAME, "pages"), (LINKS_NAME, "links")):
            where = self.place.file(name)
            if name in self.place.rubbish:
                continue
            try:
                with open_parquet(self.place.storage, where, SCHEMAS[name]) as table:
                    rows = table.rows
            except PathNotFoundError:
                self.findings.add("file_missing", where, "is not there")
                self.place.rubbish.add(name)
            except DamagedFileError as error:
                self.findings.add("table_damaged", where, str(error).removeprefix(f"{where}: "))
                self.place.rubbish.add(name)
            else:
                if rows != manifest.counts.get(count):
                    self.findings.add(
                        "table_rows", where, f"has {rows:,} rows, the manifest says {manifest.counts.get(count)}"
                    )

    def _outlink_parts(self, manifest: Manifest) -> None:
        where = self.place.file(OUTLINKS_NAME)
        found = self.place.storage.stat(where)
        size = found.size_bytes if found else 0
        try:
            parts = sorted(
                (part_mapping(value, where) for value in manifest.outlinks.values()), key=lambda part: part.offset
            )
        except DamagedFileError as error:
            self.findings.add("outlinks_parts", self.place.file(MANIFEST_NAME), str(error))
            return
        end = 0
        for part in parts:
            if part.offset != end:
                break
            end += part.length
        total = sum(part.count for part in parts)
        if found is not None and end != size:
            self.findings.add("outlinks_parts", where, f"has {size:,} bytes, and the manifest's parts end at {end:,}")
        if total != manifest.counts.get("outlinks"):
            self.findings.add(
                "outlinks_parts",
                self.place.file(MANIFEST_NAME),
                f"its parts of outlinks hold {total} URLs, its counts say {manifest.counts.get('outlinks')}",
            )
