"""`krake realtime tokens`: who may ask the real-time service."""

import argparse

from crawl_lib.cli.common import print_json, say
from crawl_lib.cli.tables import console, grid
from crawl_lib.config import load_config, realtime_of
from crawl_lib.errors import ConfigError
from crawl_lib.realtime import TokenFile


def tokens(arguments: argparse.Namespace) -> int:
    """List, add or remove tokens.

    A new token is printed once. Raises ConfigError.
    """
    file = TokenFile(realtime_of(load_config(arguments.config)).tokens)
    if arguments.add and arguments.remove:
        raise ConfigError("give --add or --remove, not both")
    if arguments.add:
        say(file.add(arguments.add, arguments.rights, arguments.urls_per_s))
        return 0
    if arguments.remove:
        file.remove(arguments.remove)
        say(f"token {arguments.remove} is removed")
        return 0
    found = [{"name": one.name, "rights": list(one.rights), "urls_per_s": one.urls_per_s} for one in file.all()]
    if arguments.json:
        print_json(found)
    else:
        rows = [(one["name"], " ".join(one["rights"]), one["urls_per_s"] or "") for one in found]  # type: ignore[arg-type]
        console().print(grid(("name", "rights", "urls_per_s"), rows))
    return 0
