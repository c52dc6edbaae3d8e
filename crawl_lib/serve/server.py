"""The server of the search page: what it needs, and answering until the stop."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from contextlib import ExitStack

from crawl_lib.search import IndexReader, IndexVersions, Sites
from crawl_lib.serve.app import Service, make_app
from crawl_lib.serve.connections import protocol_with, raise_file_limit
from crawl_lib.serve.guard import LOOPBACK_NAMES
from crawl_lib.serve.listening import Address, Server, listen
from crawl_lib.serve.newest import NewestIndex
from crawl_lib.stores import Stores

log = logging.getLogger(__name__)


def serve_search(stores: Stores, on_ready: Callable[[str], None]) -> None:
    """Answer requests for the search page until `stores.stop` is set.

    `on_ready`: called with the page's URL when the page answers. Raises ConfigError if `search.listen`, `search.hosts`
    or `search.sites` cannot be used.
    """
    options = stores.config.search
    address, sites = Address.of(options.listen), Sites.of(options)
    newest = NewestIndex(IndexReader(IndexVersions(stores)))
    if not (address.is_loopback or options.hosts):
        names = ", ".join(LOOPBACK_NAMES)
        log.warning(
            "other machines reach %s, but Krake refuses requests except for %s (search.hosts)",
            address,
            names,
        )
    with ExitStack() as stack:
        most = raise_file_limit()
        listening = stack.enter_context(contextlib.closing(listen(address)))
        newest.watch(stores.stop)
        service = Service(stores, newest, sites)
        stack.enter_context(service.pool)
        stack.enter_context(service.copies)
        on_ready(f"http://{Address(address.host, listening.getsockname()[1])}/")
        asyncio.run(Server(make_app(service), stores.stop, protocol_with(most)).serve([listening]))
