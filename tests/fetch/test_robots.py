"""robots.txt by RFC 9309, and by the third-party conformance data."""

import gzip
from dataclasses import replace

import pytest

from crawl_lib.fetch import HostStore
from crawl_lib.fetch.robots import Rules, Verdict, as_text
from crawl_lib.states import Outcome
from tests.fetch.driver import CONFIG, FakeCarrier, answer, run, run_virtual
from tests.fetch.textproto import read_cases
from tests.web.hostile import HostileWeb

OBEY = replace(CONFIG, robots="obey")

IMPLICIT = "RFC 9309, 2.2.2: /robots.txt itself is implicitly allowed; the data expects it to be matched"
RAW = "URLs are canonical here, so a raw non-ASCII character never comes; protego compares it with its escape"
DECODED = "RFC 9309, 2.2.2: escapes of unreserved characters are compared decoded; the data expects them as written"
DIVERGENCES = {
    "correctness/non-ascii-paths:1:1": RAW,
    "correctness/non-ascii-paths:2:1": RAW,
    "correctness/non-ascii-paths:3:0": DECODED,
    "stress/327748:0:5": IMPLICIT,
    "stress/369883:0:5": IMPLICIT,
    "stress/369883:0:9": IMPLICIT,
    "stress/860237:0:9": IMPLICIT,
}


def test_conformance_data(testdata):
    """Every case, the Google-specific ones too, but for the divergences named above, each with its reason."""
    cases = [case for path in sorted((testdata / "robots").rglob("*.textproto")) for case in read_cases(path)]
    assert len(cases) == 400
    wrong = {case.name for case in cases if Rules(case.robots, case.agent, 0).allows(case.url) != case.allowed}
    assert wrong == set(DIVERGENCES)


@pytest.mark.parametrize(("group", "token", "ours"), [
    ("krake", "krake", True), ("KRAKE", "krake", True), ("krake/1.0", "Krake", True), ("krake # us", "krake", True),
    ("kra", "krake", False), ("krakebot", "krake", False), ("my-krake", "krake", False), ("krake", "krake-bot", False),
    ("bot", "krake-bot", False), ("krake123", "krake", True), ("", "krake", False), ("*bot", "krake", False),
])  # fmt: skip
def test_a_group_is_ours_by_its_product_token(group, token, ours):
    """RFC 9309, 2.2.1: case-insensitive match of the product token."""
    rules = Rules(f"user-agent: {group}\ndisallow: /\n\nuser-agent: other\ndisallow: /x".encode(), token, 0)
    assert rules.allows("http://a.test/page") is not ours


def test_only_rfc_line_ends_end_a_line():
    text = as_text("User-agent: *\u2028Disallow: /\x0bx\r\nDisallow: /a\rDisallow: /b".encode(), "krake")
    assert len(text.splitlines()) == 3


def test_crawl_delay_of_our_group():
    body = b"user-agent: *\ncrawl-delay: 9\n\nuser-agent: krake\ncrawl-delay: 2.5\nuser-agent: z\ncrawl-delay: inf"
    assert Rules(body, "krake", 0).crawl_delay_s == 2.5
    assert Rules(b"user-agent: *\ncrawl-delay: -1", "krake", 0).crawl_delay_s == 0


def test_denied_urls_are_never_asked_for(tmp_path):
    with HostileWeb(robots=b"User-agent: *\nDisallow: /ok?no\n") as web:
        found = run(tmp_path, [web.url("/ok?no"), web.url("/ok?yes")], OBEY)
        assert web.paths() == ["/robots.txt", "/ok?yes"]
    assert found.outcomes() == ["robots_denied", "ok"]
    assert [fetched.url for fetched in found.robots] == [web.url("/robots.txt")]
    assert found.robots[0].body.startswith(b"User-agent")


STATUS_VERDICTS = [
    (200, b"User-agent: *\nDisallow: /", Outcome.ROBOTS_DENIED),
    (200, b"\xef\xbb\xbfUser-agent: *\nDisallow: /", Outcome.ROBOTS_DENIED),
    (200, b"<html>no robots here</html>", Outcome.OK),
    (200, b"", Outcome.OK),
    (401, b"User-agent: *\nDisallow: /", Outcome.OK),
    (403, b"", Outcome.OK),
    (404, b"", Outcome.OK),
    (429, b"", Outcome.OK),
    (500, b"", Outcome.ROBOTS_UNREACHABLE),
    (503, b"", Outcome.ROBOTS_UNREACHABLE),
]


@pytest.mark.parametrize(("status", "body", "outcome"), STATUS_VERDICTS)
def test_what_a_status_means(tmp_path, status, body, outcome):
    """RFC 9309, 2.3.1."""
    carrier = FakeCarrier(lambda url, _: answer(status, body=body) if url.endswith("/robots.txt") else answer())
    found = run_virtual(tmp_path, ["http://a.test/x"], OBEY, carrier)
    assert found.outcomes() == [outcome.value]


@pytest.mark.parametrize(("code", "outcome"), [
    (7, Outcome.ROBOTS_UNREACHABLE), (28, Outcome.ROBOTS_UNREACHABLE), (52, Outcome.ROBOTS_UNREACHABLE),
    (60, Outcome.TLS_FAILED),
])  # fmt: skip
def test_what_no_answer_means(tmp_path, code, outcome):
    """RFC 9309, 2.3.1.4. A certificate that fails for robots.txt fails for every URL, and says so."""
    carrier = FakeCarrier(lambda *_: answer(0, code=code, message="no", head=b""))
    found = run_virtual(tmp_path, ["http://a.test/x", "http://a.test/y"], OBEY, carrier)
    assert found.outcomes() == [outcome.value] * 2
    assert all(fetched.error for fetched in found.fetched)
    assert {sent.url for sent in carrier.sent} == {"http://a.test/robots.txt"}


def redirecting(hops: int):
    """robots.txt leads over `hops` redirects, each on another host, to one that forbids all."""

    def respond(url: str, _: int):
        if not url.endswith("robots.txt"):
            return answer()
        place = int(url[len("http://h") :].partition(".")[0])
        if place < hops:
            return answer(301, b"Location: //h%d.test/robots.txt\r\n" % (place + 1))
        return answer(body=b"user-agent: *\ndisallow: /")

    return respond


@pytest.mark.parametrize(
    ("hops", "outcome"), [(0, "robots_denied"), (1, "robots_denied"), (5, "robots_denied"), (6, "ok")]
)
def test_five_redirects_are_followed_over_hosts(tmp_path, hops, outcome):
    """RFC 9309, 2.3.1.2: at least five; then it counts as unavailable. Each hop is recorded."""
    found = run_virtual(tmp_path, ["http://h0.test/x"], OBEY, FakeCarrier(redirecting(hops)))
    assert found.outcomes() == [outcome]
    assert len(found.robots) == min(hops, 5) + 1


def test_two_hosts_whose_robots_lead_to_each_other_end(tmp_path):
    def respond(url: str, _: int):
        other = b"b" if "//a." in url else b"a"
        return answer(302, b"Location: http://%s.test/robots.txt\r\n" % other) if "robots" in url else answer()

    found = run_virtual(
        tmp_path, ["http://a.test/", "http://b.test/"], replace(OBEY, host_delay_s=1.0), FakeCarrier(respond)
    )
    assert found.outcomes() == ["ok", "ok"]


@pytest.mark.parametrize("location", [b"ftp://a.test/robots.txt", b"http://[", b"mailto:x"])
def test_a_redirect_to_nowhere_is_no_robots(tmp_path, location):
    carrier = FakeCarrier(
        lambda url, _: answer(302, b"Location: " + location + b"\r\n") if "robots" in url else answer()
    )
    assert run_virtual(tmp_path, ["http://a.test/"], OBEY, carrier).outcomes() == ["ok"]


def test_one_robots_for_each_authority(tmp_path):
    urls = ["http://a.test/1", "https://a.test/2", "http://a.test:8080/3", "http://a.test/4"]
    carrier = FakeCarrier(lambda *_: answer())
    run_virtual(tmp_path, urls, OBEY, carrier)
    asked = [sent.url for sent in carrier.sent if sent.url.endswith("/robots.txt")]
    assert sorted(asked) == ["http://a.test/robots.txt", "http://a.test:8080/robots.txt", "https://a.test/robots.txt"]


def expire(directory):
    with HostStore(directory) as store:
        row = store.robots("http://a.test")
        store.save_robots(replace(row, expires=0.0), store.host("a.test"))


def test_rules_that_expire_in_a_run_are_asked_for_again(tmp_path):
    carrier = FakeCarrier(lambda *_: answer())
    config = replace(OBEY, host_delay_s=50.0, robots_ttl_s=0.0)
    run_virtual(tmp_path, [f"http://a.test/{number}" for number in range(4)], config, carrier)
    assert ["robots" in sent.url for sent in carrier.sent] == [True, False, True, False, True, False, True, False]


def test_answers_are_kept_until_they_expire(tmp_path):
    carrier = FakeCarrier(lambda url, _: answer(body=b"user-agent: *\ndisallow: /no"))

    def asked() -> int:
        return sum(sent.url.endswith("/robots.txt") for sent in carrier.sent)

    config = replace(OBEY, robots_ttl_s=1e6)
    for start in (1000.0, 2000.0):
        found = run_virtual(tmp_path, ["http://a.test/no"], config, carrier, start=start)
        assert found.outcomes() == ["robots_denied"]
        carrier.closed = False
    assert asked() == 1
    expire(tmp_path)
    run_virtual(tmp_path, ["http://a.test/no"], config, carrier, start=3000.0)
    assert asked() == 2


def test_old_rules_stay_in_force_while_robots_cannot_be_reached(tmp_path):
    """RFC 9309, 2.4."""
    first = FakeCarrier(lambda *_: answer(body=b"user-agent: *\ndisallow: /no"))
    config = OBEY
    run_virtual(tmp_path, ["http://a.test/no"], config, first)
    expire(tmp_path)
    down = FakeCarrier(lambda url, _: answer(500) if "robots" in url else answer())
    found = run_virtual(tmp_path, ["http://a.test/no", "http://a.test/yes"], config, down, start=2000.0)
    assert sorted(found.outcomes()) == ["ok", "robots_denied"]
    assert sum("robots" in sent.url for sent in down.sent) == 3


def test_a_robots_that_breaks_off_forbids_all(tmp_path):
    def half(talk):
        talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nUser-agent: *\n")
        return False

    with HostileWeb() as web:
        web.on("/robots.txt", half)
        assert run(tmp_path, [web.url()], OBEY).outcomes() == ["robots_unreachable"]


def test_a_long_robots_is_cut(tmp_path):
    """RFC 9309, 2.5: at least 500 KiB are read."""
    limit = 512 * 1024
    early, late = b"User-agent: *\nDisallow: /ok?early\n", b"Disallow: /ok?late\n"
    with HostileWeb(robots=early + b"# filling\n" * (limit // 10) + late) as web:
        found = run(tmp_path, [web.url("/ok?early"), web.url("/ok?late")], OBEY)
    assert found[web.url("/ok?early")].outcome is Outcome.ROBOTS_DENIED
    assert found[web.url("/ok?late")].outcome is Outcome.OK
    assert len(found.robots[0].body) == limit
    assert found.robots[0].truncated == "length"


def test_a_gzipped_robots_is_read(tmp_path):
    body = gzip.compress(b"User-agent: *\nDisallow: /ok\n")
    with HostileWeb() as web:
        web.on("/robots.txt", lambda talk: talk.reply(headers=b"Content-Encoding: gzip\r\n", body=body))
        assert run(tmp_path, [web.url()], OBEY).outcomes() == ["robots_denied"]


def test_ignoring_robots_asks_for_none(tmp_path):
    with HostileWeb(robots=b"User-agent: *\nDisallow: /") as web:
        assert run(tmp_path, [web.url()]).outcomes() == ["ok"]
        assert web.paths() == ["/ok"]


def test_the_answer_is_stored_at_once_with_the_delay(tmp_path):
    carrier = FakeCarrier(lambda *_: answer(body=b"user-agent: *\ncrawl-delay: 7\ndisallow: /x"))
    seen = []

    def look(_taken, _fetched):
        with HostStore(tmp_path) as store:
            seen.append((store.robots("http://a.test").verdict, store.host("a.test").delay_s))

    run_virtual(tmp_path, ["http://a.test/x"], OBEY, carrier, on_fetched=look)
    assert seen == [(Verdict.RULES.value, 7.0)]
