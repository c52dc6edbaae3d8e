"""`python -m demo serve|truth|realtime`: serve a synthetic web, alone or to the real-time service; or print its truth.

`serve` prints one line of JSON (`port`, `seeds`) when the server answers, and stops on Ctrl-C. `make realtime` runs
`realtime`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from contextlib import ExitStack
from pathlib import Path

from crawl_lib.errors import KrakeError
from demo.answers import Answers
from demo.server import bind, serve
from demo.web import SynthWeb


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--seed", type=int, default=1, help="seed number of the web")
    shared.add_argument(
        "--sites", type=int, default=12, help="sites, each on a loopback address of its own"
    )
    shared.add_argument("--pages-per-site", type=int, default=100, help="ordinary pages of a site")
    shared.add_argument("--plain", action="store_true", help="ordinary pages only, nothing odd")
    shared.add_argument("--calendar", action="store_true", help="with an endless calendar")
    shared.add_argument("--web", help="all of this as JSON (the fields of SynthWeb)")
    shared.add_argument(
        "--port", type=int, default=0, help="port on all addresses; 0: any free port"
    )
    serving = commands.add_parser("serve", parents=[shared], help="serve the web")
    serving.add_argument("--log", type=Path, help="file for one line of JSON a request")
    serving.add_argument(
        "--least-s", type=float, default=0.0, help="least time in seconds for a body"
    )
    serving.add_argument("--until-eof", action="store_true", help="stop when standard input ends")
    commands.add_parser(
        "truth", parents=[shared], help="print URLs and outcomes of a crawl to the end"
    )
    watching = commands.add_parser(
        "realtime", parents=[shared], help="serve the web, and a page with a form for URLs"
    )
    watching.add_argument(
        "--config", type=Path, help="of the real-time service; default: config/realtime.yml"
    )
    watching.add_argument(
        "--listen", default="127.0.0.1:8096", help="host:port of the page; port 0: any free port"
    )
    return parser


def _web(given: argparse.Namespace) -> SynthWeb:
    if given.web:
        return SynthWeb(**json.loads(given.web))
    return SynthWeb(given.seed, given.sites, given.pages_per_site, not given.plain, given.calendar)


def _say(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def _serve(web: SynthWeb, given: argparse.Namespace) -> None:
    with ExitStack() as stack:
        log = stack.enter_context(given.log.open("a", encoding="utf-8")) if given.log else None
        sockets = bind(web.addresses(), given.port)

        def ready(port: int) -> None:
            _say({"port": port, "seeds": web.seeds(port)})

        answers = Answers(web, sockets[0].getsockname()[1])
        asyncio.run(
            serve(
                answers,
                sockets,
                log=log,
                least_s=given.least_s,
                until_eof=given.until_eof,
                on_ready=ready,
            )
        )


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return the exit code (1: the message has the remedy)."""
    given = _parser().parse_args(arguments)
    try:
        web = _web(given)
        if given.command == "serve":
            _serve(web, given)
        elif given.command == "realtime":
            from demo.realtime import CONFIG, run  # noqa: PLC0415 - an extra, for this command alone

            return run(web, given.config or CONFIG, given.listen)
        else:
            truth = web.truth(given.port)
            _say({url: str(outcome) for url, outcome in sorted(truth.outcomes().items())})
    except KrakeError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
