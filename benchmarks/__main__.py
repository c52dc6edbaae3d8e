"""`make bench`: figures of one run on this machine. Prints, never fails on a figure.

Each part runs in processes of its own, and CPU means theirs, start-up included; servers are not counted. Figures by
the clock, and crawls, are taken ahead of all other programs where the kernel allows it (root).
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import crawl_lib
from benchmarks.report import Row, ahead, load, loop_ms, machine, markdown, print_rows
from crawl_lib.version import VERSION

PARTS = (
    "crawl",
    "peers",
    "memory",
    "requisites",
    "growth",
    "hostile",
    "keys",
    "batch",
    "hdfs",
    "airflow",
    "page",
    "parsing",
    "recrawl",
    "crawldb",
    "captures",
    "commoncrawl",
    "ranks",
    "linkrank",
    "search",
    "serve",
    "realtime",
    "fetchers",
)
COMPARED = ("pairs", "first")
"""Parts that need a commit to compare with, so each runs only when it is named."""
MARKS = ("<!-- bench:begin -->", "<!-- bench:end -->")
"""What is between them in a report is replaced."""


def main() -> int:
    """Run all parts, or those named on the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all if none is named"
    )
    parser.add_argument(
        "--against",
        metavar="COMMIT",
        help=f"what {' and '.join(COMPARED)} compare this checkout with",
    )
    parser.add_argument(
        "--report", type=Path, help="a text whose table of figures is replaced by this run's"
    )
    given = parser.parse_args()
    if unknown := [name for name in given.parts if name not in (*PARTS, *COMPARED)]:
        parser.error(
            f"no such part: {', '.join(unknown)}; there are {', '.join((*PARTS, *COMPARED))}"
        )
    if bool({*COMPARED} & {*given.parts}) != bool(given.against):
        parser.error(f"{' or '.join(COMPARED)}, and --against COMMIT, go together")
    # As after an installation. Where Python must not write bytecode (PYTHONDONTWRITEBYTECODE), each process would
    # compile all it imports of Krake: a quarter of the start of a fetching process.
    importlib.import_module("compileall").compile_dir(Path(crawl_lib.__file__).parent, quiet=1)
    begun = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, load {load()}"
    rows: list[Row] = []
    loops = [loop_ms()]
    for name in given.parts or PARTS:
        print(f"{name} ...", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="krake-bench-") as directory:
            # Here, not above: each measured process imports this module again, and what it imports would be counted.
            more = [given.against] if name in COMPARED else []
            found: list[Row] = importlib.import_module(f"benchmarks.{name}").run(
                Path(directory), *more
            )
        for row in found:  # it is minutes to the table
            print(f"  {row.what}: {row.value} {row.verdict}".rstrip(), file=sys.stderr, flush=True)
        rows += found
        loops.append(loop_ms())
    print_rows(rows)
    print(*(facts := _facts(begun, given.parts, loops)), sep="\n")
    if given.report:
        replace_figures(
            given.report, "\n".join([*(f"* {fact}" for fact in facts), "", markdown(rows)])
        )
    return 0


def _facts(begun: str, parts: list[str], loops: list[float]) -> list[str]:
    command = "make bench" + (' PARTS="' + " ".join(parts) + '"' if parts else "")
    with ahead() as granted:
        by_clock = (
            "ahead of all other programs"
            if granted
            else "among other programs, which slow them down"
        )
    return [
        f"`{command}`, Krake {VERSION}",
        machine(),
        f"begun {begun}, ended {datetime.now(UTC):%H:%M}, load {load()}",
        f"a million turns of a Python loop between the parts: {min(loops):.0f} to {max(loops):.0f} ms of CPU",
        f"crawl, peers, parsing, and figures by the clock with a budget: {by_clock}",
    ]


def replace_figures(report: Path, text: str) -> None:
    """Put `text` between the marks of a report."""
    before, _, rest = report.read_text(encoding="utf-8").partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    report.write_text(f"{before}{MARKS[0]}\n{text}\n{MARKS[1]}{after}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
