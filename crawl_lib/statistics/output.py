"""Statistics as an output: damaged versions, and what killed attempts left."""

from collections.abc import Iterator

from crawl_lib.derived import SEGMENTS, Output, SetAside, existing, replaced_in
from crawl_lib.errors import DamagedFileError
from crawl_lib.findings import Finding, Findings, Severity
from crawl_lib.statistics.files import StatisticsFiles, made_again, remedy_of
from crawl_lib.stores import Stores


class StatisticsOutput(Output):
    """All files of statistics. No row repeats content of a page, so dropped pages stay counted."""

    def paths(self, stores: Stores) -> list[str]:
        """Name the folder of all dates."""
        return existing(stores, StatisticsFiles(stores).folder)

    def check(self, stores: Stores, *, full: bool) -> list[Finding]:
        """Find versions that cannot be read."""
        files, found = StatisticsFiles(stores), list[Finding]()
        for file in stores.until_stopped(files.all()):
            findings = Findings("statistics", remedy_of(file))
            try:
                files.inputs(file)
                if full:
                    files.verified(file)
            except DamagedFileError as error:
                problem = str(error).removesuffix(f"; {remedy_of(file)}")
                findings.add("statistics_damaged", file.path, problem, severity=Severity.WARNING)
            found += findings.list()
        return found

    def set_aside(self, stores: Stores, finding: Finding, *, dry_run: bool) -> str | None:
        """Set a damaged version aside."""
        files = StatisticsFiles(stores)
        [file] = [one for one in files.all() if one.path == finding.where]
        if not dry_run:
            files.set_aside(file.path)
        return f"{finding.where}: set aside; {made_again(file)}"

    def aside(self, stores: Stores) -> SetAside:
        """Find versions that were set aside."""
        return SetAside(StatisticsFiles(stores).aside())

    def leftovers(self, stores: Stores) -> Iterator[tuple[str, str]]:
        """Find hidden files of versions that exist."""
        files = StatisticsFiles(stores)
        for date in files.dates():
            yield from replaced_in(stores, f"{files.folder}/{date}")


STATISTICS_OUTPUT = StatisticsOutput("statistics", (SEGMENTS,))
