"""Plots as pieces of HTML: heading, sentence, drawing, and a table of the same numbers."""

from collections.abc import Iterable, Mapping, Sequence

from crawl_lib.plots.drawing import (
    MOST_SERIES,
    OTHERS,
    Point,
    bar_rows,
    line_paths,
    safe,
    shown,
    small_path,
    stacked_rows,
)

_COLOURS = ("#2f6f9f", "#c4622d", "#3d8b4f", "#8c5aa8", "#a8862b", "#c0476f", "#2b8c8c", "#6b7280")
_DARK_COLOURS = ("#6aaedb", "#e8935f", "#74c287", "#c39bdc", "#d8b75a", "#ea86a8", "#63c5c5", "#a5adb8")


def _colours(colours: Sequence[str]) -> str:
    return " ".join(f"--s{place}: {colour};" for place, colour in enumerate(colours))


LIGHT, DARK = _colours(_COLOURS), _colours(_DARK_COLOURS)
"""Declarations of the colours of series, on a light and on a dark page."""
STYLE = "\n".join(
    [
        "svg.plot { width: 100%; height: auto; } svg.small { width: 7.5rem; height: 1.5rem; }",
        "svg text { font-size: 13px; fill: var(--text); } svg path { fill: none; stroke-width: 2; }",
        *(f"rect.s{n} {{ fill: var(--s{n}); }} path.s{n} {{ stroke: var(--s{n}); }}" for n in range(MOST_SERIES)),
        "details.numbers { margin: 0 0 1rem; } details.numbers summary { color: var(--faint); cursor: pointer; }",
        "details.numbers td { text-align: right; padding: 0 0 0 1rem; } details.numbers th { text-align: left; }",
    ]
)
"""The CSS of all plots, without the colours: a page says where `LIGHT` and where `DARK` holds."""


def bars(title: str, text: str, rows: Mapping[str, float], *, unit: str = "number") -> str:
    """Plot one number for each name. `unit`: heads the column of the table; `text`: a sentence below the heading."""
    table = _table(title, ["", unit], [[name, shown(value)] for name, value in rows.items()])
    return _plot(title, text, f"{bar_rows(title, rows)}{table}" if rows else "")


def stacked(title: str, text: str, rows: Mapping[str, Mapping[str, float]]) -> str:
    """Plot the parts of a sum for each name: a bar of coloured pieces. `rows`: by name the numbers of each series.

    The largest series come first. The series beyond `MOST_SERIES` colours are summed up as `others`.
    """
    totals: dict[str, float] = {}
    for values in rows.values():
        for name, value in values.items():
            totals[name] = totals.get(name, 0) + value
    names = sorted(totals, key=lambda name: (-totals[name], name))
    if len(names) > MOST_SERIES:
        names, rest = names[: MOST_SERIES - 1], names[MOST_SERIES - 1 :]
        folded = {
            row: [*(values.get(name, 0) for name in names), sum(values.get(name, 0) for name in rest)]
            for row, values in rows.items()
        }
        names.append(OTHERS)
    else:
        folded = {row: [values.get(name, 0) for name in names] for row, values in rows.items()}
    table = _table(title, ["", *names], [[row, *map(shown, values)] for row, values in folded.items()])
    return _plot(title, text, f"{stacked_rows(title, names, folded)}{table}" if rows else "")


def lines(title: str, text: str, series: Mapping[str, Sequence[Point]], *, unit: str = "") -> str:
    """Plot curves of points (x, y), each from left to right. `unit`: of x; at most `MOST_SERIES` curves.

    Raises ValueError for more curves: the caller chooses which ones matter.
    """
    if len(series) > MOST_SERIES:
        raise ValueError(f"{title}: {len(series)} curves, and there are {MOST_SERIES} colours")
    places = sorted({x for line in series.values() for x, _ in line})
    values = [dict(line) for line in series.values()]
    rows = [[shown(x), *(shown(line[x]) if x in line else "" for line in values)] for x in places]
    table = _table(title, [unit, *series], rows)
    return _plot(title, text, f"{line_paths(title, series, unit)}{table}" if places else "")


def small(title: str, values: Sequence[float], *, names: Sequence[str] = ()) -> str:
    """Plot one curve as small as a word. `names`: of the values, for the table; without names they are counted."""
    named = names or [str(place) for place in range(1, len(values) + 1)]
    rows = [[name, shown(value)] for name, value in zip(named, values, strict=True)]
    return f"{small_path(title, values)}{_table(title, ['', title], rows)}" if values else ""


def _plot(title: str, text: str, content: str) -> str:
    return f'<h2>{safe(title)}</h2>\n<p class="faint">{safe(text)}</p>\n{content or "<p>none</p>"}'


def _table(title: str, heads: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """Make the table that people unfold."""
    head = "".join(f'<th scope="col">{safe(name)}</th>' for name in heads)
    body = "".join(
        f'<tr><th scope="row">{safe(row[0])}</th>{"".join(f"<td>{safe(cell)}</td>" for cell in row[1:])}</tr>'
        for row in rows
    )
    return (
        f'<details class="numbers"><summary aria-label="{safe(title)}: numbers">numbers</summary>'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></details>"
    )
