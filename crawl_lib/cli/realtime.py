"""`krake realtime tokens`: who may ask the real-time service; `krake realtime rate`: how often hosts are asked."""

import argparse

from crawl_lib.cli.common import print_json, say, tool_stores
from crawl_lib.cli.tables import console, grid
from crawl_lib.config import load_config
from crawl_lib.errors import ConfigError
from crawl_lib.realtime import TokenFile, change_rate, rate_of


def tokens(arguments: argparse.Namespace) -> int:
    """List, add or remove tokens.

    A new token is printed once. Raises ConfigError.
    """
    file = TokenFile(load_config(arguments.config).require_realtime().tokens)
    if arguments.add and arguments.remove:
        raise ConfigError("give --add or --remove, not both")
    if arguments.add:
        say(file.add(arguments.add, arguments.rights, arguments.urls_per_s))
        return 0
    if arguments.remove:
        file.remove(arguments.remove)
        say(f"token {arguments.remove} is removed")
        return 0
    found = [
        {"name": one.name, "rights": list(one.rights), "urls_per_s": one.urls_per_s}
        for one in file.all()
    ]
    if arguments.json:
        print_json(found)
    else:
        rows = [(one["name"], " ".join(one["rights"]), one["urls_per_s"] or "") for one in found]  # type: ignore[arg-type]
        console().print(grid(("name", "rights", "urls_per_s"), rows))
    return 0


def rate(arguments: argparse.Namespace) -> int:
    """Set the rate of a domain, and list all rates. Raises ConfigError, InputError, KeyStoreError."""
    given = {
        "delay_s": arguments.delay_s,
        "connections": arguments.connections,
        "is_blocked": arguments.block or None,
    }
    set_now = {name: value for name, value in given.items() if value is not None}
    if (set_now or arguments.remove) and not arguments.domain:
        raise ConfigError("name the domain whose rate is set")
    if set_now and arguments.remove:
        raise ConfigError("give --remove alone")
    with tool_stores(arguments) as stores:
        stores.config.require_realtime()
        wanted = (
            rate_of({"domain": arguments.domain, **set_now})
            if set_now or arguments.remove
            else None
        )
        rates = change_rate(stores, wanted)
    found = [
        {
            "domain": one.domain,
            "delay_s": one.delay_s,
            "connections": one.connections,
            "blocked": one.is_blocked,
        }
        for one in rates
    ]
    if arguments.json:
        print_json(found)
    else:
        rows = [
            (one["domain"], one["delay_s"], one["connections"], "yes" if one["blocked"] else "")
            for one in found
        ]
        console().print(grid(("domain", "delay_s", "connections", "blocked"), rows))
    return 0
