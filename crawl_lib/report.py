"""One HTML page about a crawl and an export of it: outcomes, rate, sizes and degrees as plots; it opens from disk.

The file holds everything: styles, and the plots as SVG. The page names no other file and no address, has no script, and
forbids itself to load anything.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crawl_lib.errors import os_errors
from crawl_lib.export import PAGES, ExportFolder, PowerCounts, open_web_graph
from crawl_lib.parquet import NO_COLUMNS
from crawl_lib.plots import bars, lines, page_of, stacked
from crawl_lib.rounds import CrawlReader, Iterations, Span
from crawl_lib.states import Outcome
from crawl_lib.stores import Stores

BATCH_ROWS = 1 << 16
SHOWN_ITERATIONS = 40


def write_report(stores: Stores, *, name: str, target: Path) -> None:
    """Write the page about a crawl and its export.

    `name`: the export. The local file `target` is replaced. Raises PathNotFoundError if the export is incomplete, and
    StorageError if the file cannot be written.
    """
    reader = Iterations()
    entries = reader.entries(stores)
    readable = [entry for entry in entries if "error" not in entry]
    with open_web_graph(stores, name=name) as graph:
        stats = graph.stats()
    outcomes = _outcomes(readable)
    unreadable = len(entries) - len(readable)
    numbers = {
        "iterations": len(entries),
        **({"iterations that cannot be read": unreadable} if unreadable else {}),
        "URLs crawled": sum(outcomes.values()),
        "pages in the export": stats.nodes,
        "links between them": stats.arcs,
    }
    newest = readable[-SHOWN_ITERATIONS:]
    spans = {entry["folder"]: span for entry in newest if (span := reader.span(stores, entry))}
    plots = [
        *_plots_of_urls(readable, outcomes, spans),
        *_plots_of_pages(ExportFolder(stores, name), stats.in_degrees, stats.out_degrees),
    ]
    page = page_of(f"Krake: {stores.config.crawl.directory}, export {name}", numbers, plots)
    with os_errors(target, "cannot be written"):
        target.write_text(page, encoding="utf-8")


def _plots_of_urls(
    readable: Sequence[CrawlReader.Iteration],
    outcomes: Mapping[str, int],
    spans: Mapping[str, Span],
) -> list[str]:
    """Draw plots of the crawl of URLs. `spans`: of iterations, by folder."""
    newest = readable[-SHOWN_ITERATIONS:]
    shown = f"At most the newest {SHOWN_ITERATIONS} iterations are shown."
    by_iteration = {entry["folder"]: entry["counts"]["outcomes"] for entry in newest}
    rates = {
        f"{entry['folder']}: {spans[entry['folder']].begun:%Y-%m-%d %H:%M}": _rate(
            entry, spans[entry["folder"]]
        )
        for entry in newest
        if entry["folder"] in spans and entry["counts"]["fetched"]
    }
    every = "Every URL counts once, however often it was tried."
    growth = _growth(readable, spans)
    return [
        bars("How the crawl of each URL ended", every, outcomes, unit="URLs"),
        stacked("Tries by outcome, by iteration", shown, by_iteration),
        bars(
            "URLs in a second, by iteration",
            f"From the first begin of a node to the last end. {shown}",
            rates,
            unit="URLs/s",
        ),
        lines(
            "URLs over time",
            f"All finished URLs, since the first of these iterations. {shown}",
            growth,
            unit="hours",
        ),
    ]


def _plots_of_pages(
    export: ExportFolder, to_pages: Mapping[str, int], on_pages: Mapping[str, int]
) -> list[str]:
    """Draw sizes of an export's pages, and how many pages have so many links.

    `to_pages`: in-degrees of its web graph; `on_pages`: out-degrees.
    """
    return [
        bars(
            "Pages by size, in bytes",
            "Of the content, its codings undone.",
            _sizes(export),
            unit="pages",
        ),
        bars(
            "Pages by the number of links to them",
            "From other pages of the export.",
            to_pages,
            unit="pages",
        ),
        bars(
            "Pages by the number of links on them",
            "To other pages of the export.",
            on_pages,
            unit="pages",
        ),
    ]


def _outcomes(entries: Sequence[CrawlReader.Iteration]) -> dict[str, int]:
    """Count URLs by final outcome, the most frequent outcome first."""
    ended = Counter[str]()
    for entry in entries:
        ended.update(entry["counts"]["outcomes"])
        ended.subtract(entry["counts"].get("retried", {}))
    return {
        outcome: number
        for outcome, number in ended.most_common()
        if number > 0 or outcome == Outcome.OK
    }


def _rate(entry: CrawlReader.Iteration, span: Span) -> float:
    """Return the URLs in a second of an iteration."""
    return float(entry["counts"]["fetched"]) / span.seconds


def _growth(
    entries: Sequence[CrawlReader.Iteration], spans: Mapping[str, Span]
) -> dict[str, list[tuple[float, float]]]:
    """Count the ended URLs at the end of each iteration.

    Points are by hours since the first begin.
    """
    total, points = 0, list[tuple[float, float]]()
    begun = min((span.begun for span in spans.values()), default=None)
    for entry in entries:
        total += entry["counts"]["urls"]
        if begun is not None and (span := spans.get(entry["folder"])):
            ended_s = (span.begun - begun).total_seconds() + span.seconds
            points.append((ended_s / 3600, total))
    return {"URLs": sorted(points)}


def _sizes(folder: ExportFolder) -> dict[str, int]:
    sizes = PowerCounts()
    with folder.table(PAGES).open(NO_COLUMNS) as table:
        for batch in folder.stores.until_stopped(table.batches(BATCH_ROWS, ["length"])):
            lengths: npt.NDArray[Any] = np.from_dlpack(
                batch.column(0).drop_null()
            )  # `to_numpy` imports pandas
            sizes.add(lengths)
    return sizes.by_range()
