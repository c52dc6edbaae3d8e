"""Plots as pieces of HTML: heading, sentence, drawing, and a table of the same numbers."""

from collections.abc import Iterable, Mapping, Sequence

from crawl_lib.plots.drawing import (
    MOST_SERIES,
    OTHERS,
    Point,
    bar_rows,
    line_paths,
    meter,
    safe,
    shown,
    small_path,
    stacked_columns,
    stacked_rows,
)

_COLOURS = ("#2f6f9f", "#c4622d", "#3d8b4f", "#8c5aa8", "#a8862b", "#c0476f", "#2b8c8c", "#6b7280")
_DARK_COLOURS = (
    "#6aaedb",
    "#e8935f",
    "#74c287",
    "#c39bdc",
    "#d8b75a",
    "#ea86a8",
    "#63c5c5",
    "#a5adb8",
)


def _colours(colours: Sequence[str]) -> str:
    return " ".join(f"--s{place}: {colour};" for place, colour in enumerate(colours))


LIGHT, DARK = _colours(_COLOURS), _colours(_DARK_COLOURS)
"""Declarations of the colours of series, on a light and on a dark page."""
STYLE = "\n".join(
    [
        "svg.plot { width: 100%; height: auto; } svg.small { width: 7.5rem; height: 1.5rem; }",
        "svg text { font-size: 13px; fill: var(--text); } svg path { fill: none; stroke-width: 2; }",
        "svg.columns { display: block; width: 100%; height: 9rem; } svg.meter { width: 100%; height: .5rem; }",
        "rect.area { fill: transparent; } a:focus > rect.area, a:hover > rect.area { fill: var(--faint); }",
        "ul.legend { display: flex; flex-wrap: wrap; gap: 0 1.2rem; padding: 0; list-style: none; }",
        "ul.legend i { display: inline-block; width: .7rem; height: .7rem; margin-right: .4rem; }",
        *(
            f"rect.s{n} {{ fill: var(--s{n}); }} path.s{n} {{ stroke: var(--s{n}); }}"
            f" i.s{n} {{ background: var(--s{n}); }}"
            for n in range(MOST_SERIES)
        ),
        "details.numbers { margin: 0 0 1rem; } details.numbers summary { color: var(--faint); cursor: pointer; }",
        "details.numbers td { text-align: right; padding: 0 0 0 1rem; } details.numbers th { text-align: left; }",
    ]
)
"""The CSS of all plots, without the colours: a page chooses between `LIGHT` and `DARK`."""


def bars(title: str, text: str, rows: Mapping[str, float], *, unit: str = "number") -> str:
    """Plot one number for each name.

    `unit`: heads the column of the table; `text`: a sentence below the heading.
    """
    table = _table(title, ["", unit], [[name, shown(value)] for name, value in rows.items()])
    return _plot(title, text, f"{bar_rows(title, rows)}{table}" if rows else "")


def stacked(title: str, text: str, rows: Mapping[str, Mapping[str, float]]) -> str:
    """Plot a sum's parts as coloured pieces of bars.

    `rows`: by name the numbers of each series. The largest series come first. The series beyond `MOST_SERIES` colours
    are summed up as `others`.
    """
    names, folded = _folded(rows)
    table = _table(
        title, ["", *names], [[row, *map(shown, values)] for row, values in folded.items()]
    )
    return _plot(title, text, f"{stacked_rows(title, names, folded)}{table}" if rows else "")


def columns(
    title: str,
    text: str,
    rows: Mapping[str, Mapping[str, float]],
    *,
    links: Mapping[str, str],
    slots: int,
) -> str:
    """Plot a sum's parts as upright bars of fixed height.

    A legend has all sums.

    `rows`: as for `stacked`; `links`: the address behind the bar of a name; `slots`: room for so many bars.
    """
    names, folded = _folded(rows)
    sums = [sum(values[place] for values in folded.values()) for place in range(len(names))]
    legend = "".join(
        f'<li><i class="s{place}"></i>{safe(name)} {shown(total)}</li>'
        for place, (name, total) in enumerate(zip(names, sums, strict=True))
    )
    table = _table(
        title, ["", *names], [[row, *map(shown, values)] for row, values in folded.items()]
    )
    most = (
        f'<p class="faint">The highest bar: {shown(max(map(sum, folded.values()), default=0))}</p>'
    )
    drawn = f'{stacked_columns(title, folded, links, slots, names)}{most}<ul class="legend">{legend}</ul>{table}'
    return _plot(title, text, drawn if rows else "")


def meters(rows: Mapping[str, float], *, head: str, unit: str) -> str:
    """Make a table of numbers with a bar in each row.

    `head`, `unit`: of the columns of names and of numbers.
    """
    most = max(rows.values(), default=0)
    cells = "".join(
        f'<tr><th scope="row">{safe(name)}</th><td>{meter(value, most)}</td><td class="num">{shown(value)}</td></tr>'
        for name, value in rows.items()
    )
    heads = (
        f'<th scope="col">{safe(head)}</th><td></td><th scope="col" class="num">{safe(unit)}</th>'
    )
    return (
        f'<table class="meters"><thead><tr>{heads}</tr></thead><tbody>{cells}</tbody></table>'
        if rows
        else ""
    )


def lines(title: str, text: str, series: Mapping[str, Sequence[Point]], *, unit: str = "") -> str:
    """Plot curves of points (x, y), each from left to right.

    `unit`: of x; at most `MOST_SERIES` curves. Raises ValueError for more curves: the caller has to choose.
    """
    if len(series) > MOST_SERIES:
        raise ValueError(f"{title}: {len(series)} curves, but only {MOST_SERIES} colours")
    places = sorted({x for line in series.values() for x, _ in line})
    values = [dict(line) for line in series.values()]
    rows = [[shown(x), *(shown(line[x]) if x in line else "" for line in values)] for x in places]
    table = _table(title, [unit, *series], rows)
    return _plot(title, text, f"{line_paths(title, series, unit)}{table}" if places else "")


def small(title: str, values: Sequence[float], *, names: Sequence[str] = ()) -> str:
    """Plot one curve as small as a word.

    `names`: of the values, for the table; without names they are counted.
    """
    named = names or [str(place) for place in range(1, len(values) + 1)]
    rows = [[name, shown(value)] for name, value in zip(named, values, strict=True)]
    return f"{small_path(title, values)}{_table(title, ['', title], rows)}" if values else ""


def _folded(rows: Mapping[str, Mapping[str, float]]) -> tuple[list[str], dict[str, list[float]]]:
    """Return series, largest first, and their values in each row.

    Small series are summed up.
    """
    totals: dict[str, float] = {}
    for values in rows.values():
        for name, value in values.items():
            totals[name] = totals.get(name, 0) + value
    names = sorted(totals, key=lambda name: (-totals[name], name))
    if len(names) > MOST_SERIES:
        names, rest = names[: MOST_SERIES - 1], names[MOST_SERIES - 1 :]
        folded: dict[str, list[float]] = {
            row: [
                *(values.get(name, 0) for name in names),
                sum(values.get(name, 0) for name in rest),
            ]
            for row, values in rows.items()
        }
        names.append(OTHERS)
    else:
        folded = {row: [values.get(name, 0) for name in names] for row, values in rows.items()}
    return names, folded


def _plot(title: str, text: str, content: str) -> str:
    return f'<h2>{safe(title)}</h2>\n<p class="faint">{safe(text)}</p>\n{content or "<p>none</p>"}'


def _table(title: str, heads: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """Make a folded table."""
    head = "".join(f'<th scope="col">{safe(name)}</th>' for name in heads)
    body = "".join(
        f'<tr><th scope="row">{safe(row[0])}</th>{"".join(f"<td>{safe(cell)}</td>" for cell in row[1:])}</tr>'
        for row in rows
    )
    return (
        f'<details class="numbers"><summary aria-label="{safe(title)}: numbers">numbers</summary>'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></details>"
    )
