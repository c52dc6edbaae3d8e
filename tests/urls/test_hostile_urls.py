"""Whatever a page writes as a URL: its canonical form is fixed, and its cost is linear in its text."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from crawl_lib.config import StepConfig
from crawl_lib.errors import UrlError
from crawl_lib.urls import LinkResolver, Rejection, canonicalize, resolve
from crawl_lib.urls.normalizers import NORMALIZERS
from crawl_lib.urls.rulefiles import RuleText
from tests.urls import hostile_checks
from tests.urls.hostile_checks import answer
from tests.urls.resolved import resolved
from tests.web.hostile_urls import HOSTS, MOST_RATIO, PATHS, draw, ratio

SEEDS = range(200)


def test_a_seed_gives_one_shape() -> None:
    assert draw(7).url(Random(7), 900) == draw(7).url(Random(7), 900) != draw(8).url(Random(8), 900)


def test_the_canonical_form_is_that_of_before() -> None:
    for seed in SEEDS:
        hostile_checks.compare(draw(seed), seed, texts=30)


@pytest.mark.parametrize("first", [0, 100])
def test_twice_the_size_takes_about_twice_the_time(first: int) -> None:
    found = {
        (draw(seed).name, what): times
        for seed in range(first, first + 100)
        for what, times in hostile_checks.ratios(draw(seed), seed).items()
    }
    assert {name: times for name, times in found.items() if times > MOST_RATIO} == {}


TEXTS: dict[str, Callable[[Random, int], str]] = {
    "the end": lambda _, size: "%3" * (size // 2) + "1",
    "dots": lambda _, size: "%2" * (size // 2) + "e/../x",
    "query": lambda _, size: "?%%%" + "%7" * (size // 2) + "e",
}


def by_resolver(text: str, longest: int) -> str:
    (target,) = resolved(LinkResolver(longest), "http://a.example/", [text])
    return target.url or f"refused: {target.rejection}"


WAYS: dict[str, Callable[[str, int], str]] = {
    "canonicalize": lambda text, longest: answer(
        lambda: canonicalize(f"http://a.example{text}", max_length_chars=longest)
    ),
    "resolve": lambda text, longest: answer(
        lambda: resolve("http://a.example/", text, max_length_chars=longest)
    ),
    "links": by_resolver,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [*TEXTS, "dots in escapes", "dots escaped in rounds"])
def test_escapes_in_escapes_are_decoded_in_one_pass(way: str, kind: str) -> None:
    """Each pass over `/%3%3%3...%31` decodes one escape: 32 KB took 3.5 s."""

    def work(size: int) -> Callable[[], object]:
        text = "/" + (TEXTS.get(kind) or PATHS[kind])(Random(1), size)
        return lambda: WAYS[way](text, 2 * size)

    assert ratio(work, 4000) <= MOST_RATIO


@pytest.mark.parametrize("kind", ["one alphabet", "marks", "umlauts", "escaped"])
def test_a_long_label_that_is_not_ascii_is_not_encoded(kind: str) -> None:
    """Its ASCII form takes quadratic time: 16,000 characters of Chinese took 0.6 s."""
    host = HOSTS[kind](Random(1), 3000)
    with pytest.raises(UrlError) as caught:
        canonicalize(f"http://www.{host}.example/")
    assert caught.value.reason == Rejection.TOO_LONG
    work = {size: HOSTS[kind](Random(1), size) for size in (400, 800)}
    assert (
        ratio(lambda size: lambda: answer(lambda: canonicalize(f"//{work[size]}/")), 400)
        <= MOST_RATIO
    )


def test_labels_that_are_not_ascii_count_one_by_one() -> None:
    label = "\u00fc" * 255
    assert len(canonicalize(f"http://{label}.{label}\u3002{label}%2E{label}/")) > 1000
    assert (
        canonicalize(f"http://{label}x@a.example/{label}") == f"http://a.example/{'%C3%BC' * 255}"
    )
    for host in (label + "x", f"a.{label}x.b", "%C3%BC" * 128, f"\thttp:\n//{label}x"):
        with pytest.raises(UrlError) as caught:
            resolve("https://a.example/", f"//{host}/" if "http" not in host else host)
        assert caught.value.reason == Rejection.TOO_LONG
    assert canonicalize(f"http://{'a' * 1000}/")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "text", ["/{}", "/../{}", "data:,{}", "/%41{}", "?{}", "//b.example/{}", "/\t{}"]
)
def test_a_raw_text_of_more_than_eight_times_the_length_is_not_read(way: str, text: str) -> None:
    long = text.format("../" * 6000)
    for href in (long, f"{long}#x"):
        assert WAYS[way](href, 2000) == "refused: too_long"


def test_eight_times_the_length_is_read_without_its_fragment() -> None:
    for count, is_read in ((15_999, True), (16_000, False)):
        href = "/" + "./" * (count // 2) + "x" * (count % 2)
        for given in (href, f"{href}#{'y' * 50_000}", f"{href}# #"):
            for way in ("resolve", "links"):
                assert WAYS[way](given, 2000) == (
                    "http://a.example/x" if is_read else "refused: too_long"
                )
    assert resolve("http://a.example/", "x #" + "y" * 50_000) == "http://a.example/x%20"


def test_a_base_of_many_folders_is_entered_in_linear_time() -> None:
    def work(size: int) -> Callable[[], object]:
        base = "http://a.example/" + "a/" * size
        return lambda: resolved(LinkResolver(1 << 20), base, ["x", "../y"])

    assert ratio(work, 5000) <= MOST_RATIO


def test_aliases_of_a_host_with_many_labels_are_looked_up_in_linear_time() -> None:
    rules = RuleText(
        StepConfig("hosts", rules="*.a.example b.example\n*.y.a.example c.example"),
        "urls.normalizers",
    )
    renamed = NORMALIZERS["hosts"](rules)
    assert renamed("http://x.y.a.example/z") == "http://b.example/z"

    def work(size: int) -> Callable[[], object]:
        url = f"http://{'a.' * size}test/"
        return lambda: renamed(url)

    assert ratio(work, 5000) <= MOST_RATIO
