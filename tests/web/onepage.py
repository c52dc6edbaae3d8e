"""A hundred thousand hosts of one page each, in one process: every address of 127.0.0.0/8 is a site.

    with OnePageServing() as sites:
        sites.url(7)

There is no robots.txt. Nothing is logged.
"""

import argparse
import asyncio
import json
from ipaddress import IPv4Address

from demo import ServerProcess, Target
from demo.answers import Answer, make_answer
from demo.server import serve
from tests.web.loopback import listen_everywhere

FIRST = IPv4Address("127.64.0.0")
MISSING = make_answer(404, [("Content-Type", "text/html")], b"<p>404</p>")
PAGE = make_answer(
    200, [("Content-Type", "text/html")], b"<title>One page</title>" + b"<p>of plain text</p>" * 100
)


class OnePage:
    """Answers the same page at `/` of every address."""

    def site(self, address: str) -> int:
        return 0

    def answer(self, target: Target, accepted: str) -> Answer:
        return PAGE if target.path == "/" else MISSING


class OnePageServing(ServerProcess):
    """Serves while its `with` block runs."""

    def __init__(self) -> None:
        super().__init__(["tests.web.onepage"], "127.0.0.1")

    def url(self, host: int) -> str:
        """The page of a host, by its number from 0."""
        return f"http://{FIRST + host}:{self.port}/"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--until-eof", action="store_true")
    parser.add_argument("--log")
    given = parser.parse_args()
    with open(given.log, "w"):  # noqa: PTH123 - what `ServerProcess` reads at the end stays empty
        pass
    asyncio.run(
        serve(
            OnePage(),
            [listen_everywhere()],
            until_eof=given.until_eof,
            on_ready=lambda port: print(json.dumps({"port": port}), flush=True),
        )
    )


if __name__ == "__main__":
    main()
