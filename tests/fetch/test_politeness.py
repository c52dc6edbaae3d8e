"""I6: never two requests to one host closer than its delay, end to start; nor to one IP, start to start."""

from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl_lib.config import HostConfig, RetryConfig
from crawl_lib.fetch import HostStore, Turns
from crawl_lib.fetch.hosts import Host, Hosts, limits_of
from crawl_lib.fetch.retry import HOST_GIVES_UP_AFTER
from crawl_lib.fetch.robots import FREE_HOSTS, RobotsPace
from tests.fetch.driver import CONFIG, FakeCarrier, answer, run, run_virtual
from tests.web.hostile import HostileWeb

POLITE = replace(CONFIG, robots="obey", host_delay_s=1.0, ip_delay_s=0.25)
SLACK_S = 1e-6


def of_hosts(carrier: FakeCarrier) -> dict[str, list]:
    hosts = defaultdict(list)
    for sent in carrier.sent:
        hosts[sent.url.split("/")[2].partition(":")[0]].append(sent)
    return hosts


def gaps(sent: list) -> list[float]:
    """End of a request to the start of the next."""
    return [
        after.start - before.end
        for before, after in pairwise(sorted(sent, key=lambda item: item.start))
    ]


def test_the_delay_runs_from_end_to_start_robots_and_failed_tries_included(tmp_path):
    def respond(url: str, number: int):
        if url.endswith("/bad"):
            return answer(500)
        if url.endswith("/broken") and number == 1:
            return answer(0, code=52)
        return answer()

    paths = ["1", "bad", "2", "broken", "3"]
    urls = [
        f"http://{host}.test:{port}/{path}" for path in paths for host in "abc" for port in (80, 81)
    ]
    carrier = FakeCarrier(respond, takes_s=lambda url: 0.7)
    found = run_virtual(tmp_path, urls, POLITE, carrier)
    assert len(found.fetched) == len(urls)
    for host, sent in of_hosts(carrier).items():
        assert len(sent) == 2 * (1 + 5 + 2 + 1), host
        assert min(gaps(sent)) >= 1.0 - SLACK_S


def test_an_ip_is_asked_start_to_start_over_all_its_hosts(tmp_path):
    urls = [f"http://h{number}.test/{page}" for page in range(3) for number in range(20)]
    carrier = FakeCarrier(lambda *_: answer())
    run_virtual(tmp_path, urls, POLITE, carrier)
    starts = sorted(sent.start for sent in carrier.sent)
    assert len(starts) == 80
    between = [after - before for before, after in pairwise(starts)]
    assert min(between) >= 0.25 - SLACK_S
    assert starts[-1] - starts[0] < 80 * 0.25 * 1.1  # and no turn is wasted


def test_robots_of_many_hosts_of_one_domain_have_a_rate(tmp_path):
    """Those of other domains, and of a domain's first hosts, have none."""
    farm = [f"http://x{number}.farm.example/" for number in range(50)]
    sites = [
        f"http://{name}.site{number}.example/"
        for number in range(10)
        for name in ("www", "m", "img")
    ]
    carrier = FakeCarrier(lambda *_: answer())
    config = replace(POLITE, ip_delay_s=0.0)
    found = run_virtual(tmp_path, [*farm, *sites], config, carrier)
    assert len(found.fetched) == 80
    asked = [sent for sent in carrier.sent if sent.url.endswith("robots.txt")]
    starts = sorted(sent.start for sent in asked if "farm" in sent.url)
    assert starts[FREE_HOSTS - 1] - starts[0] < 1.0
    assert min(after - before for before, after in pairwise(starts[FREE_HOSTS:])) >= 1.0 - SLACK_S
    assert starts[-1] - starts[0] < 35, "no turn is lost"
    assert max(sent.start for sent in asked if "site" in sent.url) < starts[0] + 1.0


def test_the_rate_is_kept_among_processes_and_without_a_delay_there_is_none(tmp_path):
    farm = [f"http://x{number}.farm.example/" for number in range(25)]
    carrier = FakeCarrier(lambda *_: answer())
    run_virtual(tmp_path, farm, replace(POLITE, ip_delay_s=0.0, host_delay_s=0.0), carrier)
    starts = [sent.start for sent in carrier.sent if sent.url.endswith("robots.txt")]
    assert max(starts) - min(starts) < 1.0
    with Turns(tmp_path / "shared", longest_s=9, delay_s=1, clock=lambda: 100.0) as turns:
        first, second = (
            (RobotsPace(hosts_of(tmp_path, 100.0), turns), Host("x.farm.example", 1.0))
            for _ in "12"
        )
        for pace, _ in (first, second):
            assert not any(
                pace.wait_s(Host(f"x{number}.farm.example", 1.0)) for number in range(FREE_HOSTS)
            )
        assert first[0].wait_s(first[1]) == 0.0
        assert second[0].wait_s(second[1]) == 1.0


def hosts_of(directory, now: float) -> Hosts:
    store = HostStore(directory, wall=lambda: now)
    return Hosts(POLITE, RetryConfig(), store, lambda: now, lambda: now)


def test_a_crawl_delay_is_honoured_up_to_the_cap(tmp_path):
    def respond(url: str, _: int):
        delay = b"5" if "//slow." in url else b"9999"
        return answer(body=b"user-agent: *\ncrawl-delay: " + delay)

    carrier = FakeCarrier(respond)
    urls = [f"http://{host}.test/{page}" for host in ("slow", "endless") for page in range(3)]
    run_virtual(tmp_path, urls, replace(POLITE, max_crawl_delay_s=30.0), carrier)
    hosts = of_hosts(carrier)
    assert min(gaps(hosts["slow.test"])) == pytest.approx(5.0, abs=0.2)
    assert min(gaps(hosts["endless.test"])) == pytest.approx(30.0, abs=0.2)


def test_redirects_of_robots_wait_for_the_other_host(tmp_path):
    def respond(url: str, _: int):
        if url == "http://a.test/robots.txt":
            return answer(301, b"Location: http://b.test/moved.txt\r\n")
        return answer()

    carrier = FakeCarrier(respond, takes_s=lambda url: 0.3)
    urls = [f"http://{host}.test/{page}" for page in range(3) for host in "ab"]
    run_virtual(tmp_path, urls, POLITE, carrier)
    sent = of_hosts(carrier)["b.test"]
    assert "http://b.test/moved.txt" in [item.url for item in sent]
    assert min(gaps(sent)) >= 1.0 - SLACK_S


def test_redirects_of_robots_wait_for_the_crawl_delay_of_the_other_host(tmp_path):
    """Also where none of its pages is asked for in this run, and its delay is known from an earlier one."""

    def respond(url: str, _: int):
        if url == "http://b.test/robots.txt":
            return answer(body=b"user-agent: *\ncrawl-delay: 9")
        return answer(301, b"Location: http://b.test/of.txt\r\n") if "robots" in url else answer()

    carrier = FakeCarrier(respond)
    run_virtual(tmp_path, ["http://b.test/"], POLITE, carrier)
    carrier.closed = False
    urls = [f"http://{host}.test/" for host in "acd"]
    run_virtual(tmp_path, urls, POLITE, carrier, start=carrier.sent[-1].end + 2.0)
    sent = of_hosts(carrier)["b.test"]
    assert len(sent) == 5
    assert min(gaps(sent)) >= 9.0 - SLACK_S


def test_delays_hold_over_iterations(tmp_path):
    carriers = [FakeCarrier(lambda *_: answer()) for _ in range(2)]
    with HostStore(tmp_path, wall=lambda: 1000.0) as store:
        store.begin()
    run_virtual(tmp_path, ["http://a.test/1"], POLITE, carriers[0])
    run_virtual(
        tmp_path, ["http://a.test/2"], replace(POLITE, host_delay_s=20.0), carriers[1], start=1002.0
    )
    assert carriers[1].sent[0].start >= carriers[0].sent[-1].end + 20.0 - 0.01


def test_after_an_unclean_stop_each_host_waits_its_own_delay(tmp_path):
    """The delay known from robots.txt counts, for hosts without one the configured one."""
    first = FakeCarrier(lambda *_: answer(body=b"user-agent: *\ncrawl-delay: 8"))
    with HostStore(tmp_path, wall=lambda: 1000.0) as store:
        store.begin()
    run_virtual(tmp_path, ["http://slow.test/1"], POLITE, first)
    with HostStore(tmp_path, wall=lambda: 1000.0) as store:
        assert store.begin() is True
    (tmp_path / "turns").unlink()
    second = FakeCarrier(lambda *_: answer())
    run_virtual(tmp_path, ["http://slow.test/2", "http://new.test/"], POLITE, second)
    starts = {host: sent[0].start for host, sent in of_hosts(second).items()}
    assert starts["new.test"] >= 1001.0 - SLACK_S
    assert starts["slow.test"] >= 1008.0 - SLACK_S


def test_no_other_process_asks_a_host_while_a_transfer_may_last(tmp_path):
    """With pauses for room that is twice the time limit."""
    waits = []

    def answered(*_):
        late = 1000.0 + 1.9 * POLITE.time_limit_s
        with Turns(tmp_path / "turns", longest_s=1e6, delay_s=1.0, clock=lambda: late) as other:
            waits.append(other.reserve("host a.test", 1.0))
        return answer()

    run_virtual(tmp_path, ["http://a.test/"], POLITE, FakeCarrier(answered))
    assert waits
    assert min(waits) > 0


@pytest.mark.parametrize(
    "config", [POLITE, replace(POLITE, host_delay_s=0.0, adaptive_delay_factor=1.0)]
)
def test_the_turn_of_a_host_is_kept_among_processes(tmp_path, config):
    with Turns(tmp_path / "turns", longest_s=60.0, delay_s=1.0, clock=lambda: 1000.0) as other:
        other.reserve("host a.test", 40.0)
    carrier = FakeCarrier(lambda *_: answer())
    run_virtual(tmp_path, ["http://a.test/"], config, carrier)
    assert carrier.sent[0].start >= 1040.0 - SLACK_S


def test_one_connection_a_host_also_without_delay(tmp_path):
    carrier = FakeCarrier(lambda *_: answer())
    urls = [f"http://a.test/{page}" for page in range(20)]
    run_virtual(tmp_path, urls, CONFIG, carrier)
    assert carrier.peak == 1
    assert [sent.url for sent in carrier.sent] == urls


def test_more_connections_a_host_if_asked_for_unless_it_wants_a_delay(tmp_path):
    def respond(url: str, _: int):
        return answer(body=b"user-agent: *\ncrawl-delay: 3" if "slow" in url else b"")

    config = replace(CONFIG, robots="obey", connections_per_host=4)
    fast, slow = FakeCarrier(respond), FakeCarrier(respond)
    run_virtual(tmp_path, [f"http://fast.test/{page}" for page in range(20)], config, fast)
    run_virtual(tmp_path, [f"http://slow.test/{page}" for page in range(20)], config, slow)
    assert (fast.peak, slow.peak) == (4, 1)
    assert min(gaps(slow.sent)) >= 3.0 - SLACK_S


OVERRIDES = (
    HostConfig("domain", "slow.test", delay_s=6.0),
    HostConfig("regex", r"^fast\d+\.", delay_s=0.0, connections=3),
    HostConfig("domain", "test", connections=1),
    HostConfig("domain", "fast1.test", delay_s=99.0),
)


@pytest.mark.parametrize(("host", "limits"), [
    ("slow.test", (6.0, 1)), ("www.slow.test", (6.0, 1)), ("notslow.test", (1.0, 1)),
    ("fast1.test", (0.0, 3)), ("a.fast1.test", (1.0, 1)), ("slow.test.org", (1.0, 1)),
])  # fmt: skip
def test_the_first_entry_that_matches_a_host_counts(host, limits):
    assert limits_of(replace(POLITE, hosts=OVERRIDES), host) == limits


def test_hosts_have_delays_and_connections_of_their_own(tmp_path):
    carrier = FakeCarrier(lambda *_: answer(), takes_s=lambda url: 1.0)
    urls = [
        f"http://{host}.test/{page}" for page in range(12) for host in ("slow", "fast1", "other")
    ]
    run_virtual(tmp_path, urls, replace(POLITE, hosts=OVERRIDES, ip_delay_s=0.0), carrier)
    hosts = of_hosts(carrier)
    assert min(gaps(hosts["slow.test"])) == pytest.approx(6.0, abs=0.1)
    assert min(gaps(hosts["other.test"])) == pytest.approx(1.0, abs=0.1)
    fast = hosts["fast1.test"]
    assert (
        max(sum(other.start <= sent.start < other.end - 0.01 for other in fast) for sent in fast)
        == 3
    )


def test_a_sites_own_wish_makes_every_delay_longer(tmp_path):
    """A Crawl-delay counts for hosts with an entry too, and then there is one connection."""
    carrier = FakeCarrier(lambda *_: answer(body=b"user-agent: *\ncrawl-delay: 4"))
    urls = [
        f"http://{host}.test/{page}" for page in range(4) for host in ("slow", "fast1", "other")
    ]
    run_virtual(tmp_path, urls, replace(POLITE, hosts=OVERRIDES), carrier)
    least = {host: min(gaps(sent)) for host, sent in of_hosts(carrier).items()}
    assert least == {"slow.test": pytest.approx(6, abs=0.2)} | dict.fromkeys(
        ("fast1.test", "other.test"), pytest.approx(4, abs=0.2)
    )


def test_a_delay_that_has_become_shorter_is_gone_by(tmp_path):
    """What a host is owed from before is waited for once; then the config and robots.txt of today hold."""
    carriers = [FakeCarrier(lambda *_: answer()) for _ in range(2)]
    urls = [f"http://a.test/{page}" for page in range(4)]
    run_virtual(tmp_path, urls, replace(POLITE, host_delay_s=20.0), carriers[0])
    ended = carriers[0].sent[-1].end
    run_virtual(tmp_path, urls, POLITE, carriers[1], start=ended + 1.0)
    assert carriers[1].sent[0].start >= ended + 20.0 - SLACK_S
    assert gaps(carriers[1].sent) == [pytest.approx(1.0, abs=0.1)] * 3


def test_a_host_rests_a_multiple_of_the_time_of_its_last_answer(tmp_path):
    """At least its delay, at most `fetch.max_crawl_delay_s`; failures, robots.txt and the next run included."""
    takes = {"robots.txt": 2.0, "quick": 0.01, "slow": 3.0, "hangs": 60.0, "last": 4.0, "late": 0.1}
    carrier = FakeCarrier(
        lambda url, _: (
            answer(0, code=28, duration_s=60.0)
            if "hangs" in url
            else answer(duration_s=takes[url.split("/")[3]])
        ),
        takes_s=lambda url: takes[url.split("/")[3]],
    )
    config = replace(POLITE, adaptive_delay_factor=5.0, max_crawl_delay_s=30.0)
    urls = [f"http://a.test/{page}" for page in ("quick", "slow", "hangs", "last")]
    run_virtual(tmp_path, urls, config, carrier)
    ended = carrier.sent[-1].end
    assert gaps(carrier.sent) == [
        pytest.approx(expected, abs=0.1) for expected in (10.0, 1.0, 15.0, 30.0, 30.0)
    ]
    carrier.closed = False
    (tmp_path / "turns").unlink()
    run_virtual(tmp_path, ["http://a.test/late"], config, carrier, start=ended + 2.0)
    assert carrier.sent[-1].start == pytest.approx(ended + 20.0, abs=0.1)


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_any_mixture_of_hosts_and_failures_stays_polite(tmp_path_factory, data):
    """Random hosts, authorities, statuses and durations: the delay holds, each URL ends once, hosts stay in order."""
    number = data.draw(st.integers(1, 60))
    urls = [
        f"http://h{data.draw(st.integers(0, 5))}.test{data.draw(st.sampled_from(['', ':81']))}/{page}"
        for page in range(number)
    ]
    status = data.draw(
        st.lists(st.sampled_from([200, 200, 200, 301, 404, 500, 503]), min_size=7, max_size=7)
    )
    takes = data.draw(st.lists(st.floats(0.01, 3.0), min_size=5, max_size=5))

    def takes_s(url: str) -> float:
        return takes[crc32(url.encode()) % 5]

    def respond(url: str, tries: int):
        code = 404 if "robots" in url else status[(crc32(url.encode()) + tries) % 7]
        return answer(code, duration_s=takes_s(url))

    carrier = FakeCarrier(respond, takes_s)
    factor = data.draw(st.sampled_from([0.0, 0.5, 20.0]))
    config = replace(POLITE, connections=3, adaptive_delay_factor=factor or None)
    found = run_virtual(tmp_path_factory.mktemp("polite"), urls, config, carrier)
    assert sorted(fetched.url for fetched in found.fetched) == sorted(urls)
    assert found.left == 0
    assert carrier.peak <= 3
    for sent in of_hosts(carrier).values():
        assert min(gaps(sent), default=9) >= 1.0 - SLACK_S
        assert all(after.start - before.end >= min(30, factor * (before.end - before.start)) - SLACK_S
                   for before, after in pairwise(sent))  # fmt: skip


def test_the_servers_own_log_shows_the_delay(tmp_path):
    config = replace(CONFIG, robots="obey", host_delay_s=0.05)
    with HostileWeb(robots=b"") as web:
        run(
            tmp_path,
            [
                web.url(path)
                for path in ("/ok", "/stale", "/flaky/500/1", "/close", "/chunked", "/short")
            ],
            config,
        )
        log = sorted(web.requests, key=lambda seen: seen.start)
    assert len(log) == 1 + 1 + 2 + 2 + 3 + 1 + 1
    assert min(after.start - before.end for before, after in pairwise(log)) >= 0.05


def test_the_servers_own_log_shows_the_delay_of_a_host_and_that_of_slow_answers(tmp_path):
    config = replace(CONFIG, robots="obey", adaptive_delay_factor=2.0)
    config = replace(
        config, host_delay_s=5.0, hosts=(HostConfig("domain", "127.0.0.1", delay_s=0.05),)
    )
    with HostileWeb(robots=b"") as web:
        web.on("/slow", lambda talk: talk.web.closing.wait(0.1) or talk.reply(body=b"slow"))
        run(tmp_path, [web.url(path) for path in ("/ok", "/slow", "/ok?1")], config)
        log = sorted(web.requests, key=lambda seen: seen.start)
    rests = [after.start - before.end for before, after in pairwise(log)]
    assert [seen.path for seen in log] == ["/robots.txt", "/ok", "/slow", "/ok?1"]
    assert min(rests) >= 0.05
    assert 0.2 <= rests[2] < 5.0


def test_a_broken_kept_connection_is_not_asked_again_without_delay(tmp_path):
    """curl would repeat the request at once on a new connection; here the repetition waits its turn."""
    config = replace(CONFIG, host_delay_s=0.1)
    with HostileWeb() as web:
        found = run(tmp_path, [web.url("/stale?1"), web.url("/stale?2")], config)
        log = web.requests
    assert found.outcomes() == ["ok", "ok"]
    assert web.paths() == ["/stale?1", "/stale?2", "/stale?2"]
    assert found[web.url("/stale?2")].attempts == 2
    assert min(after.start - before.end for before, after in pairwise(log)) >= 0.1


def test_a_host_that_fails_too_often_is_given_up(tmp_path):
    carrier = FakeCarrier(lambda url, _: answer(0, code=7) if "//dead." in url else answer())
    urls = [f"http://{host}.test/{page}" for page in range(30) for host in ("dead", "fine")]
    found = run_virtual(tmp_path, urls, CONFIG, carrier)
    assert len([sent for sent in carrier.sent if "//dead." in sent.url]) == HOST_GIVES_UP_AFTER
    outcomes = Counter(found.outcomes())
    assert (outcomes["ok"], outcomes["connect_failed"], outcomes["host_gave_up"]) == (30, 2, 28)


def test_failures_of_a_url_do_not_give_its_host_up(tmp_path):
    carrier = FakeCarrier(lambda url, _: answer(500))
    found = run_virtual(tmp_path, [f"http://a.test/{page}" for page in range(30)], CONFIG, carrier)
    assert Counter(found.outcomes()) == {"server_error": 30}


def test_a_retry_lets_the_others_go_on(tmp_path):
    carrier = FakeCarrier(
        lambda url, tries: answer(500 if "bad" in url and tries == 1 else 200),
        takes_s=lambda _: 0.01,
    )
    found = run_virtual(
        tmp_path, [f"http://a.test/{page}" for page in ("bad", "1", "2")], CONFIG, carrier
    )
    assert [fetched.url[-1] for fetched in found.fetched] == ["1", "2", "d"]
