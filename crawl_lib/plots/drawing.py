"""The drawings of plots: SVG elements from numbers. Every number is finite, and none is below 0."""

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from crawl_lib.errors import printable

MOST_SERIES = 8
"""Number of colours of a plot. Further series are summed up as `OTHERS`."""
OTHERS = "others"
_WIDTH, _ROW = 680, 24
_LABELS, _BARS = 215, 345
_LINES, _MARGIN = 180, 8
"""In pixels: a drawing's width, a row's height, the widths of labels and bars; the height and margin of lines."""
_SMALL_WIDTH, _SMALL_HEIGHT = 120, 24
_COLUMN, _COLUMN_HEIGHT = 10, 100
_LABEL_CHARS = 30
Point = tuple[float, float]


def bar_rows(title: str, rows: Mapping[str, float]) -> str:
    """Draw one bar for each row: name, bar, number.

    Each bar is below the bar before.
    """
    most = max(map(_drawn, rows.values()), default=0.0) or 1.0
    parts: list[str] = []
    for number, (name, value) in enumerate(rows.items()):
        at, width = number * _ROW, math.ceil(_BARS * _drawn(value) / most)
        parts += [
            _text(_LABELS - 8, at + 16, _cut(name), "end"),
            _rect(_LABELS, at + 4, max(1, width)),
            _text(_LABELS + 8 + width, at + 16, shown(value)),
        ]
    return _svg(title, _WIDTH, _ROW * len(rows), parts)


def stacked_rows(title: str, names: Sequence[str], rows: Mapping[str, Sequence[float]]) -> str:
    """Draw a divided bar for each row, below a legend.

    The values of the named series divide a bar.
    """
    most = max((math.fsum(map(_drawn, values)) for values in rows.values()), default=0.0) or 1.0
    parts = list(_legend(names))
    for number, (name, values) in enumerate(rows.items(), len(names)):
        at, left = number * _ROW, float(_LABELS)
        parts.append(_text(_LABELS - 8, at + 16, _cut(name), "end"))
        for place, value in enumerate(values):
            width = _BARS * _drawn(value) / most
            if width:
                parts.append(_rect(round(left, 1), at + 4, round(width, 1), place))
            left += width
        parts.append(_text(round(left) + 8, at + 16, shown(math.fsum(map(_drawn, values)))))
    return _svg(title, _WIDTH, _ROW * (len(names) + len(rows)), parts)


def stacked_columns(
    title: str,
    rows: Mapping[str, Sequence[float]],
    links: Mapping[str, str],
    slots: int,
    names: Sequence[str],
) -> str:
    """Draw a divided upright bar for each row, without text.

    The values of series divide a bar.

    `links`: the address behind the bar of a row; `slots`: room for so many bars, so that the first bars stay in place
    when more bars come; `names`: of the series.
    """
    most = max((math.fsum(map(_drawn, values)) for values in rows.values()), default=0.0) or 1.0
    parts = list[str]()
    for number, (name, values) in enumerate(rows.items()):
        pieces, top = list[str](), float(_COLUMN_HEIGHT)
        for place, value in enumerate(values):
            height = _COLUMN_HEIGHT * _drawn(value) / most
            top -= height
            if height:
                size = f'width="{_COLUMN - 2}" height="{height:.1f}"'
                pieces.append(
                    f'<rect class="s{place}" x="{number * _COLUMN + 1}" y="{top:.1f}" {size}/>'
                )
        said = ", ".join(
            f"{shown(value)} {series}" for series, value in zip(names, values, strict=True) if value
        )
        label = safe(f"{name}: {said or 'none'}")
        area = f'<rect class="area" x="{number * _COLUMN}" y="0" width="{_COLUMN}" height="{_COLUMN_HEIGHT}"/>'
        bar = f"<title>{label}</title>{area}{''.join(pieces)}"
        target = (
            f'<a href="{safe(links[name])}" target="_top" aria-label="{label}">{bar}</a>'
            if name in links
            else ""
        )
        parts.append(target or f"<g>{bar}</g>")
    box = f'viewBox="0 0 {max(slots, len(rows)) * _COLUMN} {_COLUMN_HEIGHT}" preserveAspectRatio="none"'
    return (
        f'<svg class="columns" {box} role="group" aria-label="{safe(title)}">{"".join(parts)}</svg>'
    )


def meter(value: float, most: float) -> str:
    """Draw a share of the largest value as a bar.

    A row of a table has the number.
    """
    width = _share(100 * _drawn(value), _drawn(most))
    box = 'viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true"'
    return f'<svg class="meter" {box}><rect class="s0" width="{width:.1f}" height="8"/></svg>'


def line_paths(title: str, series: Mapping[str, Sequence[Point]], unit: str) -> str:
    """Draw a legend, and a line for each series.

    The vertical axis begins at 0. `unit`: of the horizontal axis.
    """
    points = [point for line in series.values() for point in line]
    last, most = (
        max((_drawn(point[axis]) for point in points), default=0.0) or 1.0 for axis in (0, 1)
    )
    first = min((_drawn(x) for x, _ in points), default=0)
    top = _ROW * len(series) + _MARGIN
    height, width = _LINES, _WIDTH - _LABELS - _MARGIN
    parts = list(_legend(list(series)))

    def place_of(x: float, y: float) -> Point:
        return _LABELS + width * _share(_drawn(x) - first, last - first), top + height * (
            1 - _drawn(y) / most
        )

    for number, line in enumerate(series.values()):
        parts.append(_path([place_of(x, y) for x, y in line], number))
    parts += [
        _text(_LABELS - 8, top + 12, shown(most), "end"),
        _text(_LABELS - 8, top + height, "0", "end"),
        _text(_LABELS, top + height + 20, _cut(f"{shown(first)} {unit}".rstrip())),
        _text(_WIDTH - _MARGIN, top + height + 20, _cut(f"{shown(last)} {unit}".rstrip()), "end"),
    ]
    return _svg(title, _WIDTH, top + height + _ROW, parts)


def small_path(title: str, values: Sequence[float]) -> str:
    """Draw a curve of a word's size, without axes.

    The bottom is 0.
    """
    most = max(map(_drawn, values), default=0.0) or 1.0
    step, height = _SMALL_WIDTH / max(1, len(values) - 1), _SMALL_HEIGHT - 2
    shares = [_drawn(value) / most for value in values]
    points = [(step * place, 1 + height * (1 - share)) for place, share in enumerate(shares)]
    return _svg(title, _SMALL_WIDTH, _SMALL_HEIGHT, [_path(points, 0)], kind="small")


def shown(value: float) -> str:
    """Write a number for people; "unknown" for anything else.

    Whole numbers have no decimals, other numbers one.
    """
    if not math.isfinite(value):
        return "unknown"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def safe(text: str) -> str:
    """Escape a text for HTML and for attributes."""
    return escape(printable(text))


def _drawn(value: float) -> float:
    """Return a number that can be drawn.

    Negative numbers become 0, as do values that are not finite numbers.
    """
    return max(0, value) if math.isfinite(value) else 0


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def _cut(name: str) -> str:
    return name if len(name) <= _LABEL_CHARS else f"{name[: _LABEL_CHARS - 1]}…"


def _svg(title: str, width: int, height: int, parts: Sequence[str], kind: str = "plot") -> str:
    size = f'viewBox="0 0 {width} {max(height, 1)}"'
    return (
        f'<svg class="{kind}" {size} role="img" aria-label="{safe(title)}">{"".join(parts)}</svg>'
    )


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{safe(text)}</text>'


def _rect(x: float, y: float, width: float, series: int = 0) -> str:
    return f'<rect class="s{series}" x="{x}" y="{y}" width="{width}" height="{_ROW - 8}"/>'


def _path(points: Sequence[Point], series: int) -> str:
    """Draw a line through points.

    A single point becomes a short line, since a line without length is invisible.
    """
    places = [f"{x:.1f} {y:.1f}" for x, y in points]
    if len(places) == 1:
        places.append(f"{points[0][0] + 2:.1f} {points[0][1]:.1f}")
    return f'<path class="s{series}" d="M{"L".join(places)}"/>' if places else ""


def _legend(names: Sequence[str]) -> Iterator[str]:
    """Yield a coloured square and the name of each series."""
    for place, name in enumerate(names):
        yield _rect(_LABELS, place * _ROW + 4, _ROW - 8, place)
        yield _text(_LABELS + _ROW, place * _ROW + 16, _cut(name))
