"""One HTML page about a crawl and an export of it: outcomes, rate, sizes and degrees as plots; it opens from disk.

All is in the one file: styles, and the plots as SVG. It names no other file and no address, has no script, and forbids
itself to load anything.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crawl_lib.errors import os_errors
from crawl_lib.export import PAGES, ExportFolder, PowerCounts, open_web_graph, remedy_of
from crawl_lib.rounds import Iterations
from crawl_lib.segment import NO_COLUMNS, open_parquet
from crawl_lib.states import Outcome
from crawl_lib.stores import Stores

BATCH_ROWS = 1 << 16
SHOWN_ITERATIONS = 40
_ROW, _LABELS, _WIDTH, _NUMBERS = 24, 215, 345, 120
"""Of a plot, in pixels: a row's height, and the widths of labels, bars and numbers."""
_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --text: #1d2733; --back: #fff; --bar: #2f6f9f; --faint: #66717d; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --text: #e3e8ed; --back: #161b21; --bar: #6aaedb; --faint: #98a4b0; }}
}}
body {{ margin: 2rem auto; max-width: 46rem; padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif;
  color: var(--text); background: var(--back); }}
h1 {{ font-size: 1.5rem; }} h2 {{ font-size: 1.1rem; margin: 2rem 0 0; }} p {{ margin: .2rem 0 .6rem; }}
.faint {{ color: var(--faint); }}
dl {{ display: flex; flex-wrap: wrap; gap: .5rem 2.5rem; }} dt {{ color: var(--faint); }}
dd {{ margin: 0; font-size: 1.4rem; }}
svg {{ width: 100%; height: auto; }} rect {{ fill: var(--bar); }} text {{ font-size: 13px; fill: var(--text); }}
</style>
<h1>{title}</h1>
<dl>{numbers}</dl>
{plots}
</html>
"""


def write_report(stores: Stores, *, name: str, target: Path) -> None:
    """Write the page about the crawl and its export `name` to a local file, which is replaced.

    Raises PathNotFoundError where the export is not whole and StorageError where the file cannot be written.
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
        "pages in the export": stats["nodes"],
        "links between them": stats["arcs"],
    }
    plots = (
        ("How the crawl of each URL ended", "Every URL counts once, however often it was tried.", outcomes),
        (
            "URLs in a second, by iteration",
            f"From the first begin of a node to the last end. At most the newest {SHOWN_ITERATIONS} are shown.",
            dict(_rates(stores, reader, readable[-SHOWN_ITERATIONS:])),
        ),
        ("Pages by size, in bytes", "Of the content, its codings undone.", _sizes(ExportFolder(stores, name))),
        ("Pages by the number of links to them", "From other pages of the export.", stats["in_degrees"]),
        ("Pages by the number of links on them", "To other pages of the export.", stats["out_degrees"]),
    )
    page = _PAGE.format(
        title=escape(f"Krake: {stores.config.crawl.directory}, export {name}"),
        numbers="".join(f"<div><dt>{title}</dt><dd>{number:,}</dd></div>" for title, number in numbers.items()),
        plots="\n".join(_plot(title, text, rows) for title, text, rows in plots),
    )
    with os_errors(target, "cannot be written"):
        target.write_text(page, encoding="utf-8")


def _outcomes(entries: list[dict[str, Any]]) -> dict[str, int]:
    """Count how many URLs ended how, the most frequent outcome first."""
    ended = Counter[str]()
    for entry in entries:
        ended.update(entry["counts"]["outcomes"])
        ended.subtract(entry["counts"].get("retried", {}))
    return {outcome: number for outcome, number in ended.most_common() if number > 0 or outcome == Outcome.OK}


def _rates(stores: Stores, reader: Iterations, entries: list[dict[str, Any]]) -> Iterator[tuple[str, float]]:
    """Yield the URLs in a second of each iteration that fetched something."""
    for entry in stores.until_stopped(entries):
        span = reader.span(stores, entry)
        if span and entry["counts"]["fetched"]:
            yield f"{entry['folder']}: {span.begun:%Y-%m-%d %H:%M}", entry["counts"]["fetched"] / span.seconds


def _sizes(folder: ExportFolder) -> dict[str, int]:
    sizes = PowerCounts()
    with open_parquet(folder.storage, folder.file(PAGES), NO_COLUMNS, remedy_of(PAGES)) as table:
        for batch in folder.stores.until_stopped(table.batches(BATCH_ROWS, ["length"])):
            lengths: npt.NDArray[Any] = np.from_dlpack(batch.column(0).drop_null())  # `to_numpy` imports pandas
            sizes.add(lengths)
    return sizes.by_range()


def _plot(title: str, text: str, rows: Mapping[str, float]) -> str:
    """Bars, one below the other, with a heading and a sentence."""
    most = max(rows.values(), default=0) or 1
    size = f"0 0 {_LABELS + _WIDTH + _NUMBERS} {_ROW * max(1, len(rows))}"
    bars = [
        f'<text x="{_LABELS - 8}" y="{at + 16}" text-anchor="end">{escape(label)}</text>'
        f'<rect x="{_LABELS}" y="{at + 4}" width="{max(1, math.ceil(_WIDTH * value / most))}" height="{_ROW - 8}"/>'
        f'<text x="{_LABELS + 8 + math.ceil(_WIDTH * value / most)}" y="{at + 16}">{_shown(value)}</text>'
        for at, (label, value) in zip(range(0, _ROW * len(rows), _ROW), rows.items(), strict=True)
    ]
    drawn = f'<svg viewBox="{size}" role="img" aria-label="{escape(title)}">{"".join(bars)}</svg>'
    return f'<h2>{escape(title)}</h2>\n<p class="faint">{escape(text)}</p>\n{drawn if rows else "<p>none</p>"}'


def _shown(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
