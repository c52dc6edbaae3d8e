"""Tables on standard output, by rich."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from crawl_lib.cli.figures import cell_of
from crawl_lib.errors import printable

WIDE_CHARS = 120
"""Least width of a terminal on which a column of words fits next to a table's numbers."""
WHOLE_CHARS = 12
"""A column of so short cells is never broken: numbers, and names of iterations."""
WIDTH_ELSEWHERE_CHARS = 1000
"""Width of tables that go to a file or a pipe: wide enough that no path and no message is broken into lines."""


def console() -> Console:
    """Return the console for tables.

    Brackets are text, never markup: URLs and paths may have any.
    """
    width = None if sys.stdout.isatty() else WIDTH_ELSEWHERE_CHARS
    return _PlainConsole(markup=False, emoji=False, highlight=False, width=width)


def show_pairs(cells: Sequence[tuple[str, str]]) -> None:
    """Print a table of names and values."""
    table = Table(show_header=False)
    for _ in range(2):
        table.add_column(overflow="fold")  # a path or a URL is to be copied whole
    for row in cells:
        table.add_row(*row)
    console().print(table)


def grid(names: Sequence[str], rows: Sequence[Sequence[object]], title: str | None = None) -> Table:
    """Make a table that cuts no cell.

    A long cell goes on in the next line. A narrow terminal gets no lines between.

    `names`: of the columns. `rows`: the cells of each row.
    """
    narrow: dict[str, Any] = (
        {"box": None, "pad_edge": False} if console().width < WIDE_CHARS else {}
    )
    table = Table(title=title, title_justify="left", min_width=len(title or ""), **narrow)
    cells = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    for number, name in enumerate(names):
        longest = max(len(text) for text in (name, *(row[number] for row in cells)))
        table.add_column(name, overflow="fold", no_wrap=longest <= WHOLE_CHARS)
    for row in cells:
        table.add_row(*row)
    return table


class ResultRows:
    """Rows of one table, each shown as soon as it is there: see `common.ResultTable`."""

    def __init__(self, columns: Mapping[str, int]) -> None:
        self._columns = columns
        self._is_new = True

    def add(self, counts: Mapping[str, Any], cells: Mapping[str, object]) -> None:
        """Show a result. `cells`: what the row has besides `counts`."""
        table = Table(box=None, pad_edge=False, show_header=self._is_new)
        for name, width in self._columns.items():
            is_number = isinstance(counts.get(name), int)
            justify: Any = "right" if is_number else "left"
            table.add_column(
                name, min_width=width, no_wrap=is_number, overflow="fold", justify=justify
            )
        is_wide = console().width >= WIDE_CHARS
        if is_wide:
            table.add_column("", overflow="fold")
        known, shown = {**counts, **cells}, {*self._columns, *map(str, cells.values())}
        rest = [
            _said(name, value)
            for name, value in counts.items()
            if value and name not in shown and not (isinstance(value, str) and value in shown)
        ]
        others = [printable("; ".join(rest))]
        table.add_row(
            *(cell_of(known.get(name, "")) for name in self._columns), *(others if is_wide else [])
        )
        console().print(table)
        if others[0] and not is_wide:
            console().print(Padding(Text(others[0]), (0, 0, 0, 4)))
        self._is_new = False


def _said(name: str, value: object) -> str:
    if isinstance(value, Mapping):
        return (
            f"{name}: {', '.join(f'{inner} {cell_of(number)}' for inner, number in value.items())}"
        )
    return f"{name} {cell_of(value)}"


class _PlainConsole(Console):
    """A console that escapes control sequences, in lines and in the cells of tables."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str("\n".join(map(printable, text.split("\n"))), **options)
