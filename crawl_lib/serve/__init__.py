"""The search page: people find pages of the index in a browser, without a login.

How data flows: `serve_search` (`server`) listens (`listening`), and `newest` opens each new version of the index.
`connections` gives each step of a client a deadline. `guard` checks the `Host` header and adds security headers to each
answer. `app` maps addresses to answers, and `views` renders HTML from the templates. `filters` makes links with a
rewritten query. `cached` reads a page's record. `signs` makes control characters visible.

Pages have no JavaScript and set no cookie. Only `krake serve search` loads this room; the real-time service listens by
`listening` too.
"""

from typing import TYPE_CHECKING

from crawl_lib.lazy import loads_later

if TYPE_CHECKING:
    from crawl_lib.serve.app import Service, make_app
    from crawl_lib.serve.listening import Address, Server, listen
    from crawl_lib.serve.server import serve_search
else:
    # Starlette and Jinja2 are an extra.
    __getattr__ = loads_later(
        __name__,
        {
            "app": ("Service", "make_app"),
            "listening": ("Address", "Server", "listen"),
            "server": ("serve_search",),
        },
    )
