"""The generator: same value, same web; and everything that a crawler should meet is in it."""

import hashlib
from collections import Counter

import pytest

from crawl_lib.errors import InputError
from crawl_lib.states import Outcome
from demo import SynthWeb, Target, TruthOptions
from demo.rules import RobotsKind, kind_of

WEB = SynthWeb(seed=7, sites=7, pages_per_site=40)
PORT = 8080


def digest_of(web: SynthWeb, port: int = PORT) -> str:
    digest = hashlib.sha1()
    for target in sorted(web.targets()):
        resource = web.resource(target)
        digest.update(repr((target, resource.status, resource.headers, resource.links)).encode())
        digest.update(resource.content(port))
    return digest.hexdigest()


def test_equal_values_are_equal_webs_and_seeds_differ() -> None:
    assert digest_of(SynthWeb(7, 7, 40)) == digest_of(WEB)
    assert digest_of(SynthWeb(8, 7, 40)) != digest_of(WEB)


def test_port_changes_nothing_but_itself() -> None:
    page = Target(0, "/x/elements.html")
    content = WEB.resource(page).content(PORT)
    assert b":8080/" in content
    assert WEB.resource(page).content(9999) == content.replace(b":8080/", b":9999/")


def test_every_ordinary_page_of_a_site_is_reached_from_its_root() -> None:
    web = SynthWeb(seed=3, sites=1, pages_per_site=200, specials=False)
    pages = {t for t in web.targets() if t.path not in ("/robots.txt",)}
    reached = web.truth(PORT).visits
    assert {web.url(target, PORT) for target in pages} <= set(reached)


def test_degrees_are_skewed() -> None:
    truth = SynthWeb(seed=3, sites=4, pages_per_site=400, specials=False).truth(PORT)
    into = Counter(target for _, target in truth.arcs)
    mean = len(truth.arcs) / len(into)
    assert max(into.values()) > 8 * mean
    assert sorted(into.values())[len(into) // 2] < mean


def test_paths_are_canonical() -> None:
    for path in (target.path for target in WEB.targets()):
        assert path.isascii()
        assert path.startswith("/")
        assert not set(path) & set(' "<>#\\^`{|}\t\n')
        assert "/./" not in path
        assert "/../" not in path
        assert "%7E" not in path.upper()


@pytest.mark.parametrize("kind", RobotsKind)
def test_every_kind_of_robots_rules_is_there(kind: RobotsKind) -> None:
    assert kind in {kind_of(site) for site in range(WEB.sites)}


def test_every_outcome_that_a_local_web_can_give_is_there() -> None:
    assert set(WEB.truth(PORT).counts()) == {
        Outcome.OK,
        Outcome.REDIRECT,
        Outcome.GONE,
        Outcome.CLIENT_ERROR,
        Outcome.SERVER_ERROR,
        Outcome.UNEXPECTED_STATUS,
        Outcome.ROBOTS_DENIED,
        Outcome.ROBOTS_UNREACHABLE,
    }


def test_copies_have_the_same_content_under_other_urls() -> None:
    contents = Counter(WEB.truth(PORT).contents().values())
    assert contents.most_common(1)[0][1] >= 3
    assert sum(count > 1 for count in contents.values()) >= 5


def test_locate_is_the_inverse_of_url_and_refuses_other_urls() -> None:
    for target in WEB.targets():
        assert WEB.locate(WEB.url(target, PORT), PORT) == target
    for other in (
        "http://127.0.1.1:81/",
        "https://127.0.1.1:8080/",
        "http://127.0.99.1:8080/",
        "http://127.0.1.1:8080",
    ):
        with pytest.raises(InputError, match="no URL of this synthetic web"):
            WEB.locate(other, PORT)


@pytest.mark.parametrize("sizes", [(0, 5), (3, 0), (50_000, 1)])
def test_impossible_sizes_are_refused(sizes: tuple[int, int]) -> None:
    with pytest.raises(InputError, match="synthetic web"):
        SynthWeb(1, *sizes)


def test_calendar_has_no_end_and_no_other_spelling() -> None:
    web = SynthWeb(1, 2, 5, calendar=True)
    assert (
        web.resource(Target(0, "/calendar?month=123456")).links[0].target.path
        == "/calendar?month=123457"
    )
    assert web.resource(Target(0, "/calendar?month=01")) is None
    assert web.resource(Target(1, "/calendar?month=1")) is None
    shallow = web.truth(PORT, options=TruthOptions(max_depth=9))
    assert web.url(Target(0, "/calendar?month=9"), PORT) in shallow.visits
    assert web.url(Target(0, "/calendar?month=10"), PORT) not in shallow.visits
