"""robots.txt by RFC 9309, 2.3: what its answers and failures mean, and how long they hold."""

import gzip
import zlib
from collections import Counter
from dataclasses import replace

import pytest

from crawl_lib.fetch import HostStore
from crawl_lib.fetch.hoststore import HostRow, RobotsRow
from crawl_lib.fetch.robots import MAX_RULES_BYTES, UNREACHABLE_TTL_S, Verdict, row_of, rules_of_row
from crawl_lib.fetch.robotstxt import Rules
from crawl_lib.states import Outcome
from tests.fetch.driver import CONFIG, FakeCarrier, NoAddressError, answer, run, run_virtual
from tests.ports import free_port
from tests.web.hostile import HostileWeb

OBEY = replace(CONFIG, robots="obey")


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
    (418, b"", Outcome.OK),
    (429, b"", Outcome.ROBOTS_UNREACHABLE),
    (500, b"", Outcome.ROBOTS_UNREACHABLE),
    (503, b"", Outcome.ROBOTS_UNREACHABLE),
]


@pytest.mark.parametrize(("status", "body", "outcome"), STATUS_VERDICTS)
def test_what_a_status_means(tmp_path, status, body, outcome):
    """RFC 9309, 2.3.1."""
    carrier = FakeCarrier(
        lambda url, _: answer(status, body=body) if url.endswith("/robots.txt") else answer()
    )
    found = run_virtual(tmp_path, ["http://a.test/x"], OBEY, carrier)
    assert found.outcomes() == [outcome.value]


LIMIT = OBEY.max_robots_bytes
RULE = b"Disallow: /private/folder/\n"


def long_robots(rule: bytes, kept: int) -> bytes:
    """A robots.txt whose limit lies `kept` bytes into its last line."""
    start = b"User-agent: *\nDisallow: /secret/\n"
    return start + b"#" * (LIMIT - kept - len(start) - 1) + b"\n" + rule


def denied(body, headers=b""):
    """Which of three paths the rules of an answer forbid. The answer is as the transport gives it: cut at the limit."""
    fetched, _ = answer(headers=headers, body=body[:LIMIT])
    fetched = replace(fetched, truncated="length" if len(body) > LIMIT else None)
    rules = rules_of_row(row_of("http://a.test", fetched, 0, 0.0, OBEY), "krake")
    return [
        path
        for path in ("x", "secret/x", "private/folder/x")
        if not rules.allows(f"http://a.test/{path}")
    ]


SECRET, ALL, NOTHING = ["secret/x"], ["secret/x", "private/folder/x"], []


@pytest.mark.parametrize("kept", range(0, len(RULE) + 1, 3))
@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_a_line_that_the_limit_cuts_is_dropped(kept, end):
    """RFC 9309, 2.5. `Disallow: /private/folder/` would become `Disallow: /`."""
    body = long_robots(RULE, kept).replace(b"\n", end) + b"Disallow: /\n"
    is_whole = len(body) - len(b"Disallow: /\n") <= LIMIT
    assert denied(body) == (ALL if is_whole else SECRET)


def test_a_last_line_without_an_end_counts_where_nothing_was_cut():
    body = long_robots(b"Disallow: /private/folder/", len(b"Disallow: /private/folder/"))
    assert len(body) == LIMIT
    assert denied(body) == ALL
    assert denied(body + b"x") == SECRET


@pytest.mark.parametrize("name", ["gzip", "deflate"])
def test_a_line_that_damage_or_the_limit_of_the_content_cuts_is_dropped(name):
    code = {"gzip": gzip.compress, "deflate": zlib.compress}[name]
    headers = b"Content-Encoding: %b\r\n" % name.encode()
    text = (
        b"User-agent: *\nDisallow: /secret/\n"
        + b"".join(b"Allow: /%d\n" % n for n in range(9999))
        + RULE[:-10]
    )
    long = long_robots(RULE, 11)
    assert denied(code(text)[:-30], headers) == SECRET
    assert denied(code(long), headers) == SECRET
    stored = zlib.compressobj(0, wbits=31 if name == "gzip" else 15)
    body = (
        stored.compress(b"User-agent: *\nDisallow: /secret/\nDisallow: /private/") + stored.flush()
    )
    for kept in range(60, len(body) - 8):
        assert denied(body[:kept], headers) in (NOTHING, SECRET)


def test_chunks_that_break_off_cut_the_last_line():
    body = b"2c\r\nUser-agent: *\nDisallow: /secret/\nDisallow: /\r\n"
    assert denied(body, b"Transfer-Encoding: chunked\r\n") == SECRET


@pytest.mark.parametrize("named", ["gzip", "deflate", "br", "gzip, br", "zstd"])
def test_a_coding_that_was_not_applied_leaves_all_lines(named):
    body = b"User-agent: *\nDisallow: /secret/\nDisallow: /private/"
    found = denied(body, b"Content-Encoding: %b\r\n" % named.encode())
    assert found == ALL


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_known_by_its_mark(codec):
    text = "\ufeffUser-agent: *\r\nDisallow: /secret/\r\nDisallow: /private/"
    assert denied(text.encode(codec)) == ALL
    long = text[:-8] + "\r\n#" + "x" * LIMIT
    assert denied(long.encode(codec)) == ["x", *ALL]
    chinese = (
        "\ufeffUser-agent: *\nDisallow: /secret/\n#"
        + "\u65e5" * (LIMIT // 2 - 99)
        + "\nDisallow: /private/"
    )
    assert denied(chinese.encode(codec)) == SECRET


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_known_by_its_type_unless_its_type_is_wrong(codec):
    text = "User-agent: *\r\nDisallow: /secret/\r\nDisallow: /private/"
    kind = b"Content-Type: text/plain; charset=%b\r\n" % codec.replace("16-", "16").encode()
    assert denied(text.encode(codec), kind) == ALL
    assert denied(text.encode(), kind) == ALL


NO_ANSWER = [
    (7, Outcome.CONNECT_FAILED), (28, Outcome.TIMEOUT), (52, Outcome.CONNECT_FAILED), (1, Outcome.PROTOCOL_ERROR),
    (60, Outcome.TLS_FAILED),
]  # fmt: skip


@pytest.mark.parametrize(("code", "outcome"), NO_ANSWER)
def test_no_answer_forbids_all_and_says_what_failed(tmp_path, code, outcome):
    """RFC 9309, 2.3.1.4. What fails for robots.txt fails for every URL of its authority, also in the next run."""
    carrier = FakeCarrier(lambda *_: answer(0, code=code, message="no"))
    for urls in (["http://a.test/x", "http://a.test/y"], ["http://a.test/z"]):
        found = run_virtual(tmp_path, urls, OBEY, carrier)
        assert found.outcomes() == [outcome.value] * len(urls)
        assert all("no" in fetched.error for fetched in found.fetched)
        carrier.closed = False
    assert {sent.url for sent in carrier.sent} == {"http://a.test/robots.txt"}


def test_a_name_without_address_and_an_inner_address_are_told_as_such(tmp_path):
    def resolver(host: str) -> list[str]:
        if host == "inner.test":
            return ["10.1.2.3"]
        raise NoAddressError("no such name")

    carrier = FakeCarrier(lambda *_: answer())
    found = run_virtual(
        tmp_path, ["http://none.test/", "http://inner.test/"], OBEY, carrier, resolver=resolver
    )
    assert {fetched.url: fetched.outcome for fetched in found.fetched} == {
        "http://none.test/": Outcome.DNS_FAILED,
        "http://inner.test/": Outcome.ADDRESS_REFUSED,
    }
    assert not carrier.sent


def test_where_no_server_listens_it_is_told_so(tmp_path):
    port = free_port()
    found = run(tmp_path, [f"http://127.0.0.1:{port}/x"], OBEY)
    assert found.outcomes() == ["connect_failed"]
    assert found.fetched[0].error.startswith("robots.txt: ")


@pytest.mark.parametrize(("code", "outcome"), NO_ANSWER)
def test_a_failure_where_robots_redirects_to_is_not_the_hosts_own(tmp_path, code, outcome):
    def respond(url: str, _: int):
        if url == "http://a.test/robots.txt":
            return answer(301, b"Location: http://b.test/robots.txt\r\n")
        return answer(0, code=code, message="no") if "//b." in url else answer()

    found = run_virtual(tmp_path, ["http://a.test/x"], OBEY, FakeCarrier(respond))
    assert found.outcomes() == ["robots_unreachable"]
    assert outcome.value in found.fetched[0].error
    assert "b.test" in found.fetched[0].error


@pytest.mark.parametrize("status", [429, 500, 503])
def test_an_answer_that_forbids_all_is_asked_for_again_after_ten_minutes(tmp_path, status):
    carrier = FakeCarrier(lambda url, _: answer(status) if "robots" in url else answer())
    run_virtual(tmp_path, ["http://a.test/"], OBEY, carrier)
    with HostStore(tmp_path) as store:
        row = store.robots("http://a.test")
    assert (row.verdict, row.expires - row.fetched) == (
        "robots_unreachable",
        pytest.approx(UNREACHABLE_TTL_S),
    )


@pytest.mark.parametrize(("verdict", "refusal"), [
    ("rules", None), ("allow", None), ("robots_unreachable", Outcome.ROBOTS_UNREACHABLE), ("timeout", Outcome.TIMEOUT),
])  # fmt: skip
def test_rows_of_any_version_are_read(verdict, refusal):
    rules = rules_of_row(
        RobotsRow("http://a.test", verdict, b"user-agent: *\ndisallow: /", "e", 1.0, 2.0), "krake"
    )
    assert (rules.refusal or (None,))[0] == refusal
    assert rules.allows("http://a.test/") is (verdict != "rules")


@pytest.mark.parametrize("verdict", ["", "ok", "unreachable", "of tomorrow"])
def test_a_row_with_another_verdict_counts_as_unknown(tmp_path, verdict):
    with HostStore(tmp_path) as store:
        store.save_robots(
            RobotsRow("http://a.test", verdict, b"", "", 1000.0, 1e9), HostRow("a.test", 0.0, 0.0)
        )
    carrier = FakeCarrier(lambda *_: answer())
    assert run_virtual(tmp_path, ["http://a.test/"], OBEY, carrier).outcomes() == ["ok"]
    assert [sent.url for sent in carrier.sent] == ["http://a.test/robots.txt", "http://a.test/"]


def test_the_memory_for_rules_is_bounded(tmp_path, monkeypatch):
    """Hosts whose rules were dropped are asked for pages only: the answers are in the store."""
    body = b"user-agent: *\ndisallow: /no\n" + b"".join(
        b"disallow: /%d*x\n" % number for number in range(300)
    )
    size = Rules(body, "krake", 0).size_bytes
    assert 300 * 100 < size < MAX_RULES_BYTES
    monkeypatch.setattr("crawl_lib.fetch.robots.MAX_RULES_BYTES", 3 * size)
    made = []
    monkeypatch.setattr(
        "crawl_lib.fetch.robots.Rules", lambda *given: made.append(1) or Rules(*given)
    )
    carrier = FakeCarrier(lambda *_: answer(body=body))
    urls = [f"http://h{host}.test/{page}" for page in ("1", "2", "no") for host in range(8)]
    found = run_virtual(tmp_path, urls, replace(OBEY, host_delay_s=1.0), carrier)
    assert Counter(found.outcomes()) == {"ok": 16, "robots_denied": 8}
    assert sum("robots" in sent.url for sent in carrier.sent) == 8
    assert len(made) > 8


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
    ("hops", "outcome"),
    [(0, "robots_denied"), (1, "robots_denied"), (5, "robots_denied"), (6, "ok")],
)
def test_five_redirects_are_followed_over_hosts(tmp_path, hops, outcome):
    """RFC 9309, 2.3.1.2: at least five; then it counts as unavailable. Each hop is recorded."""
    found = run_virtual(tmp_path, ["http://h0.test/x"], OBEY, FakeCarrier(redirecting(hops)))
    assert found.outcomes() == [outcome]
    assert len(found.robots) == min(hops, 5) + 1


def test_two_hosts_whose_robots_lead_to_each_other_end(tmp_path):
    def respond(url: str, _: int):
        other = b"b" if "//a." in url else b"a"
        return (
            answer(302, b"Location: http://%s.test/robots.txt\r\n" % other)
            if "robots" in url
            else answer()
        )

    found = run_virtual(
        tmp_path,
        ["http://a.test/", "http://b.test/"],
        replace(OBEY, host_delay_s=1.0),
        FakeCarrier(respond),
    )
    assert found.outcomes() == ["ok", "ok"]


@pytest.mark.parametrize(
    ("location", "target"),
    [
        (b"/r\xc3\xa9gles.txt", "http://a.test/r%C3%A9gles.txt"),
        (b"/r\xe9gles", "http://a.test/r%E9gles"),
        (b"/voil\xc3\xa0", "http://a.test/voil%C3%A0"),
        (b"?\xff", "http://a.test/robots.txt?%FF"),
        (b"//b\xc3\xbccher.test/robots.txt", "http://xn--bcher-kva.test/robots.txt"),
    ],
)
def test_a_redirect_of_robots_to_octets_is_followed_as_they_are(tmp_path, location, target):
    """Read as latin-1, `/r\xc3\xa9gles.txt` led to a missing page, and what the rules forbid was fetched."""
    pages = {"http://a.test/robots.txt": answer(302, b"Location: " + location + b"\r\n")}
    pages[target] = answer(body=b"user-agent: *\ndisallow: /no")
    carrier = FakeCarrier(
        lambda url, _: pages.get(url) or answer(404 if "o" in url.partition("test/")[2] else 200)
    )
    found = run_virtual(tmp_path, ["http://a.test/no", "http://a.test/x"], OBEY, carrier)
    assert sorted(found.outcomes()) == ["ok", "robots_denied"]
    assert target in [sent.url for sent in carrier.sent]


@pytest.mark.parametrize("location", [b"ftp://a.test/robots.txt", b"http://[", b"mailto:x"])
def test_a_redirect_to_nowhere_is_no_robots(tmp_path, location):
    carrier = FakeCarrier(
        lambda url, _: (
            answer(302, b"Location: " + location + b"\r\n") if "robots" in url else answer()
        )
    )
    assert run_virtual(tmp_path, ["http://a.test/"], OBEY, carrier).outcomes() == ["ok"]


def test_one_robots_for_each_authority(tmp_path):
    urls = ["http://a.test/1", "https://a.test/2", "http://a.test:8080/3", "http://a.test/4"]
    carrier = FakeCarrier(lambda *_: answer())
    run_virtual(tmp_path, urls, OBEY, carrier)
    asked = [sent.url for sent in carrier.sent if sent.url.endswith("/robots.txt")]
    assert sorted(asked) == [
        "http://a.test/robots.txt",
        "http://a.test:8080/robots.txt",
        "https://a.test/robots.txt",
    ]


def expire(directory):
    with HostStore(directory) as store:
        row = store.robots("http://a.test")
        store.save_robots(row._replace(expires=0.0), store.host("a.test"))


def test_rules_that_expire_in_a_run_are_asked_for_again(tmp_path):
    carrier = FakeCarrier(lambda *_: answer())
    config = replace(OBEY, host_delay_s=50.0, robots_ttl_s=0.0)
    run_virtual(tmp_path, [f"http://a.test/{number}" for number in range(4)], config, carrier)
    assert ["robots" in sent.url for sent in carrier.sent] == [
        True,
        False,
        True,
        False,
        True,
        False,
        True,
        False,
    ]


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
    found = run_virtual(
        tmp_path, ["http://a.test/no", "http://a.test/yes"], config, down, start=2000.0
    )
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
        web.on(
            "/robots.txt", lambda talk: talk.reply(headers=b"Content-Encoding: gzip\r\n", body=body)
        )
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
