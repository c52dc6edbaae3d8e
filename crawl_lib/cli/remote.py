"""`krake realtime fetcher`, `krake realtime certificates`: real time on several machines."""

import argparse
import sys
import time
from contextlib import closing
from pathlib import Path

from crawl_lib.cli.common import InterruptedTool, print_json, say
from crawl_lib.cli.servicelog import log_to_stderr
from crawl_lib.config import load_config
from crawl_lib.realtime import FetcherPlace, Identity, make_certificates, serve_fetcher
from crawl_lib.serve import Address, listen


def fetcher(arguments: argparse.Namespace) -> int:
    """Fetch for a service on another machine until stopped.

    The stop raises InterruptedTool. Raises ConfigError for unusable certificates, LockedError.
    """
    log_to_stderr()
    arguments.stop.text = "the fetcher is closed"
    place = FetcherPlace(arguments.name, Path(arguments.directory).absolute())
    identity = Identity(Path(arguments.certificates), arguments.name)
    identity.context()
    with closing(listen(Address.of(arguments.listen, "--listen"), "--listen")) as listening:
        host, port = listening.getsockname()[:2]
        say(f"fetcher {place.name}: {Address(host, port)}")
        sys.stdout.flush()  # the reader of a pipe waits for this line
        serve_fetcher(place, identity, listening, arguments.stop, time.monotonic)
    raise InterruptedTool


def certificates(arguments: argparse.Namespace) -> int:
    """Make missing certificates, renew old ones, and say which. Raises ConfigError."""
    config = load_config(arguments.config).require_realtime()
    made = make_certificates(Path(config.certificates), [one.name for one in config.fetchers])
    if arguments.json:
        print_json(
            [
                {"file": str(one.path), "until": one.until.isoformat(), "new": one.is_new}
                for one in made
            ]
        )
        return 0
    for one in made:
        say(
            f"{one.path}: {'made now' if one.is_new else 'unchanged'}, valid until {one.until:%Y-%m-%d}"
        )
    if any(one.is_new for one in made[1:]):
        say("copy ca.pem and NAME.pem to each fetcher; no restart is needed")
    return 0
