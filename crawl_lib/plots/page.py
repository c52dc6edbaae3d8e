"""A page of plots that opens from disk: the page has no script, names no other file, and forbids all loading."""

from collections.abc import Mapping, Sequence
from html import escape

from crawl_lib.plots.plots import DARK, LIGHT, STYLE

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --text: #1d2733; --back: #fff; --faint: #66717d; {light} }}
@media (prefers-color-scheme: dark) {{
  :root {{ --text: #e3e8ed; --back: #161b21; --faint: #98a4b0; {dark} }}
}}
body {{ margin: 2rem auto; max-width: 46rem; padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif;
  color: var(--text); background: var(--back); }}
h1 {{ font-size: 1.5rem; }} h2 {{ font-size: 1.1rem; margin: 2rem 0 0; }} p {{ margin: .2rem 0 .6rem; }}
.faint {{ color: var(--faint); }}
dl {{ display: flex; flex-wrap: wrap; gap: .5rem 2.5rem; }} dt {{ color: var(--faint); }}
dd {{ margin: 0; font-size: 1.4rem; }}
{style}
</style>
<h1>{title}</h1>
<dl>{numbers}</dl>
{plots}
</html>
"""


def page_of(title: str, numbers: Mapping[str, int], plots: Sequence[str]) -> str:
    """Make a page of plots as HTML.

    `numbers`: with their names, above the plots.
    """
    return _PAGE.format(
        title=escape(title),
        style=STYLE,
        light=LIGHT,
        dark=DARK,
        numbers="".join(
            f"<div><dt>{escape(name)}</dt><dd>{number:,}</dd></div>"
            for name, number in numbers.items()
        ),
        plots="\n".join(plots),
    )
