"""The search page: people find pages of the index in a browser, without a login.

How data flows: `serve_search` (`server`) listens, and has `newest` open each new version of the index. A request passes
`guard`, which checks the name it was sent to and adds the headers that keep a page from being used against its reader;
`app` answers it. An answer to a query becomes what a page shows in `results`, and HTML by the templates; `filters` are
links that write the query. `cached` reads a page's record. `signs` makes strangers' text harmless to read.

Pages have no JavaScript and set no cookie. Only `krake serve search` loads this room.
"""

from typing import TYPE_CHECKING

from crawl_lib.lazy import loads_later

if TYPE_CHECKING:
    from crawl_lib.serve.app import Service, make_app
    from crawl_lib.serve.server import Address, serve_search
else:
    # Starlette and Jinja2 are an extra.
    __getattr__ = loads_later(__name__, {"app": ("Service", "make_app"), "server": ("Address", "serve_search")})
