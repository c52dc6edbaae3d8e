"""A service with two fetchers behind gates: each URL goes to the owner of its part, after a loss to the other."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from crawl_lib.config import FetcherConfig
from crawl_lib.errors import ConfigError
from crawl_lib.realtime import Client, TokenFile
from crawl_lib.realtime.certificates import SCHEDULER, Identity
from crawl_lib.realtime.leases import Leases, Lessee, wanted_parts
from crawl_lib.realtime.pages import PARTS, part_of
from crawl_lib.realtime.pages_sqlite import SqlitePages
from crawl_lib.realtime.protocol import Setup
from crawl_lib.realtime.remote import RemoteLink
from crawl_lib.realtime.store import PageStore
from crawl_lib.realtime.tokens import RIGHTS
from tests.realtime.fake import Web, make_config
from tests.realtime.remote import Remote, children, remote
from tests.realtime.test_service import running, stores_of
from tests.web.hostile import HostileWeb

NAMES = frozenset(["live-1", "live-2"])


def address_of(name: str) -> str:
    """A loopback address whose part should be with a fetcher."""
    addresses = (f"127.0.0.{number}" for number in range(2, 250))
    return next(address for address in addresses if part_of(address) in wanted_parts(name, NAMES))


def sections(*there: Remote) -> dict[str, Any]:
    fetchers = [{"name": one.name, "address": one.address} for one in there]
    return {
        "fetch": {
            "allow_networks": ["127.0.0.0/8"],
            "ip_delay_s": 0.0,
            "host_delay_s": 0.1,
            "robots": "ignore",
        },
        "realtime": {"fetchers": fetchers, "certificates": str(there[0].home)},
    }


def test_urls_go_to_the_owner_of_their_part_and_after_a_loss_to_the_other(tmp_path: Path) -> None:
    with ExitStack() as stack:
        one = stack.enter_context(remote(tmp_path, "live-1"))
        two = stack.enter_context(remote(tmp_path, "live-2"))
        webs = {name: stack.enter_context(HostileWeb(address_of(name))) for name in sorted(NAMES)}
        stores = stores_of(tmp_path, **sections(one, two))
        token = TokenFile(stores.config.realtime.tokens).add("test", RIGHTS)
        url = stack.enter_context(running(stores, Web()))
        client = stack.enter_context(Client(url, token))
        for web in webs.values():
            client.submit([web.url("/first")])
        for name, web in webs.items():
            page = client.page(web.url("/first"), wait_s=30)
            assert page is not None
            assert page.document is not None, name
        while not (found := children(two)):  # on a busy machine a line may just have been lost
            client.page(webs["live-2"].url("/first"))
        (stopped,) = found
        os.kill(stopped, signal.SIGSTOP)
        try:
            client.submit([webs["live-2"].url("/second")])
            page = client.page(webs["live-2"].url("/second"), wait_s=30)
            assert page is not None
            assert page.document is not None, "the other fetcher has the part now"
        finally:
            os.kill(stopped, signal.SIGCONT)
        for web in webs.values():
            client.submit([web.url("/third")])
        for web in webs.values():
            page = client.page(web.url("/third"), wait_s=30)
            assert page is not None
            assert page.document is not None
    # On a busy machine leases lapse and lines are lost, so a URL may be asked for again, by either fetcher.
    assert set(webs["live-1"].paths()) == {"/first", "/third"}
    assert set(webs["live-2"].paths()) == {"/first", "/second", "/third"}
    assert any(part for there in (one, two) for part in there.place.spool.glob("*.rowless.json"))


@pytest.mark.parametrize("has_ended", [True, False])
def test_leases_are_given_back_once_the_fetcher_has_said_its_last_word(
    tmp_path: Path, has_ended: bool
) -> None:
    async def main() -> int:
        leases = Leases(lambda: SqlitePages(tmp_path / "pages.sqlite"))
        setup = Setup(config={}, digest="0" * 64)
        link = RemoteLink(
            FetcherConfig("live-1", "127.0.0.1:1"),
            Identity(tmp_path, SCHEDULER),
            setup,
            leases,
            PageStore([]),
        )
        await leases.renew(link._lessee)
        link.has_ended = has_ended
        await link.end()
        others = await leases.renew(Lessee("live-2"))
        leases.close()
        return len(others)

    assert asyncio.run(main()) == (PARTS if has_ended else 0)


def test_several_fetchers_with_delays_by_address_have_to_share_them(tmp_path: Path) -> None:
    fetchers = [{"name": name, "address": "127.0.0.1:1"} for name in sorted(NAMES)]
    with pytest.raises(
        ConfigError, match=r"fetch\.ip_delay_s: several fetchers.*realtime\.share_turns: true"
    ):
        make_config(tmp_path, realtime={"fetchers": fetchers})
    assert make_config(
        tmp_path, realtime={"fetchers": fetchers, "share_turns": True}
    ).shares_addresses
    assert not make_config(tmp_path, realtime={"fetchers": fetchers[:1]}).shares_addresses
    with pytest.raises(ConfigError, match="'live-1' is taken"):
        make_config(tmp_path, fetch={"ip_delay_s": 0}, realtime={"fetchers": [fetchers[0]] * 2})
    with (
        pytest.raises(ConfigError, match="run `krake realtime certificates`"),
        running(
            stores_of(
                tmp_path,
                realtime={"fetchers": fetchers[:1], "certificates": str(tmp_path / "none")},
            ),
            Web(),
        ),
    ):
        pass
