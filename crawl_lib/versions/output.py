"""Tables with versions as outputs: damaged versions, leftovers of killed attempts, and versions with a given page."""

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from crawl_lib.derived import Output, PagePlace, Pages, SetAside, existing
from crawl_lib.errors import DamagedFileError
from crawl_lib.findings import Finding
from crawl_lib.parquet import parquet_batches
from crawl_lib.stores import Stores
from crawl_lib.versions.version import Family, Version, Versions


def has_key(stores: Stores, path: str, keys: Collection[bytes], column: str = "key") -> bool:
    """Say whether a table's column has one of some pages' keys.

    Raises DamagedFileError, StorageError.
    """
    wanted = pa.array(sorted(keys), pa.binary(20))
    batches = parquet_batches(
        stores.storage, path, pa.schema([pa.field(column, pa.binary(20))]), [column]
    )
    found = (pc.is_in(batch.column(0), value_set=wanted) for batch in stores.until_stopped(batches))
    return any(pc.any(one).as_py() for one in found)


@dataclass(frozen=True)
class TableOutput(Output):
    """The versions of a family. `page_column`: the key of the page whose content a row repeats; "": no column."""

    family: Family
    page_column: str = ""

    def versions(self, stores: Stores) -> Versions:
        """Return the versions in a crawl."""
        return Versions(stores, self.family)

    def paths(self, stores: Stores) -> list[str]:
        """Name the folder of all versions."""
        return existing(stores, self.versions(stores).folder)

    def check(self, stores: Stores, *, full: bool) -> list[Finding]:
        """Find damaged versions.

        If no version is complete, each finding says how to make one again.
        """
        versions = self.versions(stores)
        found = versions.check(full=full)
        if not self._may_be_the_last(versions, found):
            return found
        repairs = [
            self.family.rebuilt.replace("all of them", f"the folder {one.where}") for one in found
        ]
        return [replace(one, repair=repair) for one, repair in zip(found, repairs, strict=True)]

    def set_aside(self, stores: Stores, finding: Finding, *, dry_run: bool) -> str | None:
        """Set a damaged version aside, unless it may be the last.

        None: no version is whole, and data may be lost without the damaged versions.
        """
        versions = self.versions(stores)
        if finding.repair != self.family.remedy:
            return None
        if not dry_run:
            versions.set_aside(int(finding.where.rpartition("/")[2]))
        return f"{finding.where}: set aside; {self.family.made_again}"

    def aside(self, stores: Stores) -> SetAside:
        """Find versions set aside.

        They are kept if no version is whole.
        """
        versions = self.versions(stores)
        paths = [f"{versions.folder}/{name}" for name in versions.aside()]
        if paths and self._may_be_the_last(versions, versions.check()):
            return SetAside(skipped=[f"{path}: no version is whole" for path in paths])
        return SetAside(paths)

    def leftovers(self, stores: Stores) -> Iterator[tuple[str, str]]:
        """Find hidden folders of versions whose number, or a later number, exists."""
        versions = self.versions(stores)
        newest = max(versions.numbers(), default=-1)
        for entry in (
            stores.storage.list(versions.folder) if stores.storage.exists(versions.folder) else ()
        ):
            number = entry.name.removeprefix(".").partition("-")[0]
            if entry.name.startswith(".") and number.isdecimal() and int(number) <= newest:
                problem = f"is of an attempt to make version {number}, and {newest} is there"
                yield f"{versions.folder}/{entry.name}", problem

    def places_of(self, stores: Stores, pages: Pages) -> Iterator[PagePlace]:
        """Find versions that repeat content of a page.

        An unreadable version is named, to be safe.
        """
        versions = self.versions(stores)
        for number in versions.numbers() if self.page_column else ():
            holds = True
            with suppress(DamagedFileError):
                holds = self.holds(versions, versions.read(number), pages)
            if holds:
                keep = stores.config.crawldb.keep_versions
                until = f"{self.family.made_again}; of its versions the newest {keep} are kept (crawldb.keep_versions)"
                yield PagePlace(versions.path(number), until)

    def holds(self, versions: Versions, version: Version, pages: Pages) -> bool:
        """Say whether a version has one of these pages.

        Raises DamagedFileError, StorageError, StoppedError.
        """
        if self.page_column == "key":
            return any(len(rows) for key in pages for rows in versions.rows_of(version, key))
        return any(
            has_key(versions.stores, path, pages, self.page_column) for path in version.paths
        )

    def _may_be_the_last(self, versions: Versions, found: list[Finding]) -> bool:
        """Say whether damaged versions are the last of their data.

        No version is complete, and the usual command cannot make the data again.
        """
        return bool(self.family.rebuilt) and len(found) == len(versions.numbers())
