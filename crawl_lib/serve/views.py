"""HTML from the templates. Jinja2 escapes all text."""

from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from crawl_lib.search import PAGE_SIZE, Snippet, time_of
from crawl_lib.serve.signs import signs, text_signs
from crawl_lib.urls import host_of

_FOLDER = Path(__file__).with_name("templates")
_STYLE = (_FOLDER / "style.css").read_text()
PAGE_POLICY = (
    f"default-src 'none'; style-src 'sha256-{b64encode(sha256(_STYLE.encode()).digest()).decode()}'; img-src data:;"
    " frame-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
"""The policy of our own pages: no script, the style sheet inside of each page, and frames of this server."""
SHOWN_NUMBERS = 9
"""Result pages with a link by number."""


def search_link(query: str, page: int = 1, *, broader: bool = False) -> str:
    """Return the address of a result page."""
    more = {**({"page": page} if page > 1 else {}), **({"broader": 1} if broader else {})}
    return f"/?{urlencode({'q': query, **more})}"


def pieces(snippet: Snippet) -> Iterator[tuple[str, bool]]:
    """Yield a snippet's pieces, marking words of the query."""
    last = 0
    for start, end in snippet.marks:
        yield signs(snippet.text[last:start]), False
        yield signs(snippet.text[start:end]), True
        last = end
    yield signs(snippet.text[last:]), False


def page_numbers(page: int, results: int) -> range:
    """Return the numbers of result pages around a page.

    `results`: on all pages together.
    """
    last = -(-results // PAGE_SIZE)
    first = max(1, min(page - SHOWN_NUMBERS // 2, last - SHOWN_NUMBERS + 1))
    return range(first, min(last, first + SHOWN_NUMBERS - 1) + 1)


def day(time_us: int) -> str:
    """Return a day, such as "4 May 2026"."""
    time = time_of(time_us)
    return f"{time.day} {time:%b} {time.year}"


def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        auto_reload=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        signs=signs, text_signs=text_signs, pieces=pieces, day=day, time=time_of, host=host_of
    )
    made.globals.update(style=Markup(_STYLE), search_link=search_link, page_numbers=page_numbers)  # noqa: S704 - a file of ours
    return made


_TEMPLATES = _environment()


def render(template: str, **values: Any) -> str:
    """Return a page. `values`: the names of the template."""
    return _TEMPLATES.get_template(template).render(**values)
