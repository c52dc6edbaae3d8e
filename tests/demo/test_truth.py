"""The truth against what is known of single URLs, told by hand."""

import pytest

from crawl_lib.errors import InputError
from crawl_lib.states import Outcome
from demo import SynthWeb, Target, Truth, TruthOptions

PORT = 8080
WEB = SynthWeb(seed=5, sites=7, pages_per_site=30)
PLAIN, DELAY, MISSING, AGENT, WILDCARDS, MOVED, FAILING = range(7)


def url(site: int, path: str) -> str:
    return WEB.url(Target(site, path), PORT)


def crawl(seeds: list[str] | None = None, **options: object) -> Truth:
    return WEB.truth(PORT, seeds, TruthOptions(**options))


@pytest.fixture(scope="module")
def truth() -> Truth:
    return crawl()


@pytest.mark.parametrize(
    ("site", "path", "outcome"),
    [
        (PLAIN, "/", Outcome.OK),
        (PLAIN, "/private/secret.html", Outcome.ROBOTS_DENIED),
        (PLAIN, "/private/open/page.html", Outcome.OK),
        (PLAIN, "/private/deeper.html", None),
        (MISSING, "/private/secret.html", Outcome.OK),
        (MISSING, "/private/deeper.html", Outcome.OK),
        (AGENT, "/", Outcome.OK),
        (AGENT, "/private/secret.html", Outcome.ROBOTS_DENIED),
        (FAILING, "/", Outcome.ROBOTS_UNREACHABLE),
        (FAILING, "/x/", None),
        (MOVED, "/private/secret.html", Outcome.ROBOTS_DENIED),
        (WILDCARDS, "/x/run.cgi", Outcome.ROBOTS_DENIED),
        (PLAIN, "/x/run.cgi", Outcome.OK),
        (PLAIN, "/x/status-403.html", Outcome.CLIENT_ERROR),
        (PLAIN, "/x/status-404.html", Outcome.GONE),
        (PLAIN, "/x/status-410.html", Outcome.GONE),
        (PLAIN, "/x/status-500.html", Outcome.SERVER_ERROR),
        (PLAIN, "/x/busy-once.html", Outcome.OK),
        (PLAIN, "/x/no-content", Outcome.OK),
        (PLAIN, "/x/no-location", Outcome.UNEXPECTED_STATUS),
        (PLAIN, "/x/lost", Outcome.REDIRECT),
        (PLAIN, "/x/nowhere-at-all.html", Outcome.GONE),
        (PLAIN, "/x/chain-end.html", Outcome.OK),
        (PLAIN, "/x/loop-a", Outcome.REDIRECT),
        (PLAIN, "/x/loop-b", Outcome.REDIRECT),
        (PLAIN, "/x/loop-self", Outcome.REDIRECT),
        (DELAY, "/x/arrived.html", Outcome.OK),
        (PLAIN, "/x/long-11", Outcome.REDIRECT),
        (PLAIN, "/x/long-12", None),
        (PLAIN, "/x/only-nofollow.html", None),
        (PLAIN, "/x/only-meta-nofollow.html", None),
        (PLAIN, "/x/only-header-nofollow.html", None),
        (PLAIN, "/x/not-a-link.html", None),
        (PLAIN, "/style.css", None),
        (PLAIN, "/img/0.png", Outcome.OK),
        (PLAIN, "/img/1.png", None),
        (PLAIN, "/x/by-refresh.html", Outcome.OK),
        (PLAIN, "/x/by-frame-left.html", Outcome.OK),
        (PLAIN, "/other/place/found.html", Outcome.OK),
        (PLAIN, "/robots.txt", None),
    ],
)
def test_outcome_of_known_urls(truth: Truth, site: int, path: str, outcome: Outcome | None) -> None:
    visit = truth.visits.get(url(site, path))
    assert (visit and visit.outcome) == outcome


def test_arcs_count_unfollowed_links_between_crawled_pages_only(truth: Truth) -> None:
    index, elements = url(0, "/x/"), url(0, "/x/elements.html")
    assert (index, elements) in truth.arcs
    assert (index, url(0, "/x/moved-301")) not in truth.arcs
    assert (index, url(0, "/x/status-404.html")) not in truth.arcs
    assert (index, url(0, "/x/no-content")) not in truth.arcs
    assert (elements, url(0, "/img/1.png")) not in truth.arcs
    assert (url(0, "/x/spellings.html"), url(0, "/x/~caf%C3%A9/a%20b/spelled.html")) in truth.arcs
    assert all(source != target for source, target in truth.arcs)
    hidden = [pair for pair in truth.arcs if pair[0] == url(0, "/x/meta-nofollow.html")]
    assert (
        len(hidden) == 1
    )  # recorded though not followed; its other link leads to a page never crawled


def test_rounds_fetch_what_earlier_rounds_found(truth: Truth) -> None:
    first = crawl(rounds=1)
    assert set(first.visits) == set(WEB.seeds(PORT))
    second = crawl(rounds=2)
    assert set(first.visits) < set(second.visits) < set(truth.visits)
    assert {visit.round for visit in second.visits.values()} == {1, 2}
    assert crawl(rounds=truth.rounds).visits == truth.visits
    assert crawl(rounds=truth.rounds - 1).visits != truth.visits


def test_scope_is_the_seeds_hosts_and_where_seeds_redirect() -> None:
    hosts = {name.split("/")[2] for name in crawl([url(2, "/")]).visits}
    assert hosts == {"127.0.1.3:8080"}
    widened = crawl([url(1, "/x/away")])
    assert {name.split("/")[2] for name in widened.visits} == {"127.0.1.2:8080", "127.0.1.3:8080"}
    everywhere = crawl([url(0, "/")], scope="any")
    assert len({name.split("/")[2] for name in everywhere.visits}) == WEB.sites + 1
    assert everywhere.visits["http://127.0.1.8:8080/"].outcome is Outcome.CONNECT_FAILED


def test_options_of_robots_nofollow_and_redirects() -> None:
    ignoring = crawl(robots="ignore")
    assert ignoring.visits[url(FAILING, "/")].outcome is Outcome.OK
    assert ignoring.visits[url(PLAIN, "/private/deeper.html")].outcome is Outcome.OK
    following = crawl(follow_nofollow=True)
    for name in ("only-nofollow", "only-meta-nofollow", "only-header-nofollow"):
        assert following.visits[url(PLAIN, f"/x/{name}.html")].outcome is Outcome.OK
    assert url(PLAIN, "/x/long-4") not in crawl(max_redirects=2).visits
    assert url(PLAIN, "/x/long-13") in crawl(max_redirects=12).visits


def test_a_limit_of_depth_that_leaves_it_to_chance_is_refused() -> None:
    refused = 0
    for depth in range(1, 8):
        try:
            crawl(max_depth=depth)
        except InputError as error:
            assert "chance" in str(error)  # noqa: PT017 - some depths are fine
            refused += 1
    assert 0 < refused < 7
