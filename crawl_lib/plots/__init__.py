"""Plots as SVG in HTML, made on the server without a script, each with a table of the same numbers.

How data flows: a caller gives numbers with names, and gets one piece of HTML: a heading, a sentence, the drawing
(`drawing`) and a folded table (`plots`), from which people can copy, and which a screen reader reads aloud. `STYLE` is
the CSS of all plots, `LIGHT` and `DARK` are the colours of series; a page with plots sets `--text` and `--faint`, too.
`page_of` makes a page that opens from disk.

These functions escape all names, since strangers choose some, and cut a long name in the drawing only.
"""

from crawl_lib.plots.drawing import MOST_SERIES
from crawl_lib.plots.page import page_of
from crawl_lib.plots.plots import DARK, LIGHT, STYLE, bars, columns, lines, meters, small, stacked
