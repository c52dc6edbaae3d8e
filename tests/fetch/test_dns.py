"""Names to addresses: every question is answered in time, and no name waits for a slow one."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pycares
import pytest
import uvloop

from crawl_lib.fetch.dispatch import Seams
from crawl_lib.fetch.dns import YOUNG, YOUNG_S, DnsCache, Resolved, SystemResolver
from tests.fetch.driver import CONFIG, AtOnce, NoAddressError, VirtualLoop, run
from tests.web.hostile import HostileWeb
from tests.web.names import NameServer, Said

LOOPBACK = Said(["127.0.0.1"])


class Written:
    """A resolver that answers when the test says so, and notes when each name was asked for."""

    def __init__(self) -> None:
        self.asked: dict[str, float] = {}
        self.then: dict[str, Callable[[Resolved], None]] = {}

    def ask(self, host: str, then: Callable[[Resolved], None]) -> None:
        self.asked[host] = asyncio.get_running_loop().time()
        self.then[host] = then

    def close(self) -> None:
        pass

    retire = close


def looked_up(
    names: list[str], written: Written, *, for_s: float, timeout_s: float = 5.0
) -> dict[str, Resolved]:
    """What a cache says of names that are asked for at the same time, after some (virtual) seconds."""
    found: dict[str, Resolved] = {}

    async def main() -> None:
        loop = asyncio.get_running_loop()
        cache = DnsCache(60.0, timeout_s, loop.time, lambda: written)
        for name in names:
            cache.look_up(name, lambda answer, name=name: found.__setitem__(name, answer))
        await asyncio.sleep(for_s)
        cache.close()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())
    return found


@pytest.mark.parametrize("slow", [0, 1, YOUNG, 320, 1000])
def test_names_that_never_answer_delay_others_by_a_quarter_second_for_each_128(slow: int) -> None:
    written = Written()
    names = [*(f"slow{number}.test" for number in range(slow)), "good.test"]
    looked_up(names, written, for_s=30.0)
    assert list(written.asked) == names
    assert written.asked["good.test"] - 1000.0 <= (YOUNG_S + 0.1) * (slow // YOUNG)


@pytest.mark.parametrize("timeout_s", [0.1, 0.3, 5.0])
def test_a_name_that_takes_too_long_has_no_address_and_says_which_option(timeout_s: float) -> None:
    names = [f"slow{number}.test" for number in range(300)]
    found = looked_up(
        names, Written(), for_s=timeout_s + 2 * (YOUNG_S + 0.1) + 0.2, timeout_s=timeout_s
    )
    assert set(found) == set(names)
    assert {(answer.addresses, answer.temporary) for answer in found.values()} == {((), False)}
    assert all("fetch.dns_timeout_s" in answer.error for answer in found.values())


def test_an_answer_that_came_while_the_loop_was_held_up_counts() -> None:
    """Timers fire before sockets are read, so a long piece of other work must not use up a name's time."""
    written = Written()
    found: list[Resolved] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        cache = DnsCache(60.0, 5.0, loop.time, lambda: written)
        for name in ("a.test", "b.test"):
            cache.look_up(name, found.append)
        await asyncio.sleep(1.0)
        loop.virtual.now += 10.0
        loop.call_soon(written.then["a.test"], Resolved(("127.0.0.1",)))
        await asyncio.sleep(1.0)
        cache.close()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())
    assert [answer.addresses for answer in found] == [("127.0.0.1",), ()]


def test_one_question_serves_all_who_ask_and_a_late_answer_none() -> None:
    written = Written()
    found: list[Resolved] = []

    async def main() -> None:
        cache = DnsCache(60.0, 1.0, asyncio.get_running_loop().time, lambda: written)
        for _ in range(3):
            cache.look_up("a.test", found.append)
        assert len(written.asked) == 1
        await asyncio.sleep(2.0)
        assert len(found) == 3
        written.then["a.test"](Resolved(("127.0.0.1",)))
        await asyncio.sleep(1.0)
        cache.close()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())
    assert [answer.addresses for answer in found] == [()] * 3


def test_answers_are_kept_as_long_as_they_hold_and_so_many_as_there_is_room() -> None:
    failing = {
        "gone.test": NoAddressError("no such name"),
        "down.test": NoAddressError("no answer", temporary=True),
    }

    def addresses_of(host: str) -> list[str]:
        if host in failing:
            raise failing[host]
        return ["127.0.0.1"]

    async def main() -> None:
        loop = asyncio.get_running_loop()
        cache = DnsCache(100.0, 1.0, loop.time, lambda: AtOnce(addresses_of))
        for host in ("a.test", *failing):
            cache.look_up(host, lambda answer: None)
        await asyncio.sleep(1.0)
        assert [cache.get(host) is not None for host in ("a.test", "gone.test", "down.test")] == [
            True,
            True,
            False,
        ]
        await asyncio.sleep(60.0)
        assert [cache.get(host) is not None for host in ("a.test", "gone.test")] == [True, False]
        await asyncio.sleep(40.0)
        assert cache.get("a.test") is None
        for number in range(12_000):
            cache.look_up(f"h{number}.test", lambda answer: None)
        await asyncio.sleep(100.0)
        assert len(cache._answers) == 10_000
        cache.close()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())


# -- with a name server ---------------------------------------------------------------------------------------------


def system_says(
    names: list[str], server: str, *, then: Sequence[str] = (), limit_s: float = 20.0
) -> dict[str, Resolved]:
    """What the system's resolver says of names, then of others, on the loop that crawls run on."""
    found: dict[str, Resolved] = {}

    async def main() -> None:
        loop = asyncio.get_running_loop()
        asked = DnsCache(60.0, limit_s, loop.time, partial(SystemResolver, (server,)))

        async def look_up(name: str) -> None:
            answer = loop.create_future()
            asked.look_up(name, answer.set_result)
            found[name] = await answer

        async with asyncio.timeout(limit_s):
            for some in (names, then):
                await asyncio.gather(*map(look_up, some))
        asked.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
    return found


def test_both_families_are_asked_for_and_failures_told_apart() -> None:
    says = {
        "both.test": Said(["127.0.0.7", "::1"]),
        "old.test": Said(["127.0.0.7", "127.0.0.8"]),
        "new.test": Said(["::1"]),
        "none.test": Said(),
        "gone.test": Said(code=3),
        "broken.test": Said(code=2),
    }
    with NameServer(says.__getitem__) as dns:
        found = system_says(list(says), dns.address)
    assert {name: sorted(answer.addresses) for name, answer in found.items()} == {
        name: sorted(said.addresses) for name, said in says.items()
    }
    assert {name for name, answer in found.items() if answer.error} == {
        "none.test",
        "gone.test",
        "broken.test",
    }
    assert {name for name, answer in found.items() if answer.temporary} == {"broken.test"}


def test_no_server_is_a_temporary_failure() -> None:
    with NameServer(lambda name: LOOPBACK) as dns:
        address = dns.address
    assert system_says(["a.test"], address)["a.test"].temporary


def test_the_hosts_file_is_the_systems() -> None:
    """hosts(5): the first name of each line, and localhost, are asked of no server."""
    filed: dict[str, set[str]] = {}
    for line in Path("/etc/hosts").read_text().splitlines():
        words = line.partition("#")[0].split()
        for name in words[1:2]:
            filed.setdefault(name.lower(), set()).add(words[0])
    names = list(dict.fromkeys([*filed, "localhost", "a.localhost"]))
    with NameServer(lambda name: Said(code=3)) as dns:
        found = system_says(names, dns.address)
        assert dns.asked == []
    assert all(
        found[name].addresses and set(found[name].addresses) <= {*filed[name], "::1"}
        for name in filed
    )
    assert set(found["a.localhost"].addresses) <= {"127.0.0.1", "::1"}


def test_search_domains_and_options_are_those_of_the_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """resolv.conf(5): `search` and `options`, which these variables override."""
    monkeypatch.setenv("LOCALDOMAIN", "corp.test")
    monkeypatch.setenv("RES_OPTIONS", "ndots:2")
    known = {"intranet.corp.test": "127.0.0.44", "a.b": "127.0.0.55", "c.d.corp.test": "127.0.0.66"}
    with NameServer(lambda name: Said([known[name]]) if name in known else Said(code=3)) as dns:
        found = system_says(["intranet", "a.b", "c.d"], dns.address)
        assert "c.d" not in dns.asked
    assert [found[name].addresses for name in ("intranet", "a.b", "c.d")] == [
        (known[name],) for name in known
    ]


@pytest.mark.parametrize(
    "name", ["", ".", "a..b", "-", "a_b.test", "*.test", "x" * 64, "\x00", "ü.test", "%"]
)
def test_odd_names_are_answered_too(name: str) -> None:
    with NameServer(lambda asked: Said(code=3)) as dns:
        assert not system_says([name], dns.address)[name].addresses


def test_a_quick_server_is_asked_for_a_slow_name_until_the_time_is_up() -> None:
    """c-ares goes by how long others took, and asks three times: a name that took a second was not found."""
    asked: Counter[str] = Counter()

    def says(name: str) -> Said:
        asked[name] += 1
        return (
            LOOPBACK if name != "slow.test" or asked[name] > 6 else Said(delay_s=None)
        )  # two families, three times

    with NameServer(says) as dns:
        names = [f"quick{number}.test" for number in range(20)]
        found = system_says(names, dns.address, then=["slow.test"])
    assert all(answer.addresses for answer in found.values())
    assert "slow.test" in found


def test_a_resolver_that_cannot_be_set_up_is_a_temporary_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(**options: object) -> None:
        raise pycares.AresError("Failed to initialize c-ares channel")

    monkeypatch.setattr(pycares, "Channel", broken)
    answer = system_says(["a.test"], "127.0.0.1:1")["a.test"]
    assert answer.temporary
    assert "c-ares" in answer.error


def test_channels_are_changed_and_closed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A channel of c-ares keeps its answers: without another one now and then a crawl would keep them all."""
    monkeypatch.setattr("crawl_lib.fetch.dns._QUESTIONS_PER_RESOLVER", 50)
    before = set(Path("/proc/self/fd").iterdir())
    names = [f"h{number}.test" for number in range(501)]
    with NameServer(
        lambda name: replace(LOOPBACK, delay_s=0.2 if name.endswith("3.test") else 0.0)
    ) as dns:
        assert all(answer.addresses for answer in system_says(names, dns.address).values())
    assert set(Path("/proc/self/fd").iterdir()) == before
    assert capfd.readouterr() == ("", "")


# -- in a run -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delay_s", [0.5, None])
def test_320_slow_names_do_not_delay_a_good_page(tmp_path: Path, delay_s: float | None) -> None:
    """Finding 8: with sixteen look-ups at a time it took ten seconds."""

    def says(name: str) -> Said:
        return LOOPBACK if name == "good.test" else Said(["127.0.0.1"], delay_s)

    with HostileWeb() as web, NameServer(says) as dns:
        seams = Seams(resolver=partial(SystemResolver, (dns.address,)))
        urls = [web.url(host=f"slow{number}.test") for number in range(320)] + [
            web.url(host="good.test")
        ]
        began = time.time()
        found = run(
            tmp_path, urls, replace(CONFIG, dns_timeout_s=10.0 if delay_s else 2.0), seams=seams
        )
    assert found[urls[-1]].outcome == "ok"
    assert found[urls[-1]].time - began < 6.0
    slow = {"ok"} if delay_s else {"dns_failed"}
    assert {found[url].outcome for url in urls[:-1]} == slow


def test_a_name_server_that_never_answers_does_not_hold_the_stop(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    with NameServer(lambda name: Said(delay_s=None)) as dns:
        seams = Seams(resolver=partial(SystemResolver, (dns.address,)))
        found = run(
            tmp_path, [f"http://h{number}.test/" for number in range(300)], seams=seams, limit_s=0.2
        )
    assert time.monotonic() - began < 5
    assert found.left == 300
    assert capfd.readouterr() == ("", "")
