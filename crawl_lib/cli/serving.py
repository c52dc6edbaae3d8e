"""`krake serve search`: the search page; `krake serve realtime`: the real-time service."""

import argparse
import sys
from importlib.util import find_spec

from crawl_lib.cli.common import InterruptedTool, say
from crawl_lib.cli.servicelog import log_to_stderr
from crawl_lib.config import load_config
from crawl_lib.errors import SetupError
from crawl_lib.stores import open_stores


def search(arguments: argparse.Namespace) -> int:
    """Serve the search page until stopped.

    The stop raises InterruptedTool. Raises SetupError if the extra `search` is not installed, ConfigError.
    """
    for name in ("jinja2", "starlette", "uvicorn"):
        if find_spec(name) is None:
            raise SetupError(
                f"the search page needs the package {name}: install Krake with its extra `search`"
            )
    from crawl_lib.serve import serve_search  # noqa: PLC0415 - an extra, for this command alone

    log_to_stderr()
    arguments.stop.text = "the search page is closed"
    stores = open_stores(load_config(arguments.config), stop=arguments.stop, make=False)
    serve_search(stores, _say_where)
    raise InterruptedTool


def _say_where(url: str) -> None:
    say(f"search page: {url}")
    sys.stdout.flush()  # the reader of a pipe waits for this line


def realtime(arguments: argparse.Namespace) -> int:
    """Serve URLs in real time until stopped.

    The stop raises InterruptedTool. Raises SetupError if the extra `realtime` is not installed, ConfigError,
    LockedError.
    """
    for name in ("httptools", "msgspec", "starlette", "uvicorn"):
        if find_spec(name) is None:
            raise SetupError(
                f"the real-time service needs the package {name}: install Krake with its extra `realtime`"
            )
    from crawl_lib.realtime import fetcher_of, serve_realtime  # noqa: PLC0415 - an extra, for this command alone

    log_to_stderr()
    arguments.stop.text = "the real-time service is closed"
    stores = open_stores(load_config(arguments.config), stop=arguments.stop)
    serve_realtime(stores, fetcher_of(stores), _say_service)
    raise InterruptedTool


def _say_service(url: str) -> None:
    say(f"real-time service: {url}")
    sys.stdout.flush()
