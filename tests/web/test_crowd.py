"""The hostile web of many hosts: what it is made of, and that it says on a loop what a habit says in a thread."""

import socket
from random import Random

import pytest

from tests.web.attacks import ALL
from tests.web.catalogue import CASES, GOOD, HOSTILE, good_hosts, hosts_of, varied
from tests.web.crowd import CrowdServing
from tests.web.hostile import HostileWeb

ENDS = [
    "/ok",
    "/short",
    "/chunked",
    "/http09",
    "/half-head",
    "/spacing",
    "/status/404",
    "/bases/9/1",
    "/not-gzip",
]
ENDS += ["/inflate/gzip/1/2", "/two-lengths", "/header-flood/3000", "/to/inner", "/close"]
"""Habits whose answer ends by itself, and is the same each time."""


def test_every_habit_is_a_case() -> None:
    used = {
        word
        for case in CASES.values()
        for text in (case.path, case.robots)
        for word in text_of(text)
    }
    assert used >= set(ALL) - {"ok", "body"}


def text_of(text: str) -> list[str]:
    """The habits that a path of a case may name."""
    first = text.strip("/").partition("/")[0]
    return first.strip("{}").split("|")


@pytest.mark.parametrize("name", CASES)
def test_a_case_names_habits_that_there_are(name: str) -> None:
    case = CASES[name]
    assert {*text_of(case.path), *text_of(case.robots)} <= {*ALL, "denied"}


def test_every_case_is_there_and_another_seed_makes_other_pages() -> None:
    first, again, other = (hosts_of(seed, 500, 2) for seed in (1, 1, 2))
    assert first == again
    assert {host.name for host in first} == set(CASES)
    assert len({host.host for host in first}) == len({host.address for host in first}) == 500
    pages = [{path for host in hosts for path in host.paths} for hosts in (first, other)]
    assert len(pages[0] - pages[1]) > 100
    assert not {*good_hosts(500)} & {host.host for host in first}


def test_the_variants_of_a_text_are_within_its_bounds() -> None:
    found = {varied("/{3-5}/{a|b}", Random(number)) for number in range(100)}
    assert found == {f"/{number}/{letter}" for number in (3, 4, 5) for letter in "ab"}


def said(address: str, port: int, path: str) -> bytes:
    """What a server sends to one request until it closes, or until there is nothing more to send."""
    with socket.create_connection((address, port), timeout=20) as sock:
        sock.sendall(f"GET {path} HTTP/1.1\r\nHost: {address}:{port}\r\n\r\n".encode())
        sock.shutdown(socket.SHUT_WR)
        data = b""
        while piece := sock.recv(1 << 16):
            data += piece
    return data


def test_a_habit_sends_the_same_on_the_loop_as_in_a_thread() -> None:
    with CrowdServing(seed=1, hostile=3, urls=1) as crowd, HostileWeb() as web:
        for path in ENDS:
            web.on(path, ALL[text_of(path)[0]])
            assert said("127.90.0.1", crowd.port, path) == said("127.0.0.1", web.port, path), path


def test_a_good_page_is_served_at_every_good_address_and_logged() -> None:
    with CrowdServing(seed=1, hostile=1, urls=1) as crowd:
        for address in (f"{GOOD}.0.1", f"{GOOD}.3.200"):
            assert said(address, crowd.port, "/good/1").startswith(b"HTTP/1.1 200 OK\r\n")
        assert said(f"{HOSTILE}.0.9", crowd.port, "/robots.txt").startswith(b"HTTP/1.1 404")
        assert crowd.log().counts() == {
            f"http://{GOOD}.{rest}:{crowd.port}/good/1": 1 for rest in ("0.1", "3.200")
        }
