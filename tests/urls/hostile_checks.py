"""Checks for one shape of hostile URLs: the canonical form is that of before, and twice the size costs twice the time.

`tests.web.hostile_urls` draws the shapes; `test_hostile_urls` and a run by hand use these checks.
"""

from collections.abc import Callable
from random import Random

from crawl_lib.errors import UrlError
from crawl_lib.urls import LinkResolver, canonicalize, resolve
from tests.urls import old_canonical
from tests.urls.resolved import resolved
from tests.web.hostile_urls import Shape, ratio

BASES = ("http://a.example/", "https://b.example/x/y.html?q", "http://a.example//x//y/z/")
SIZE = 3000
LINKS = 12


def answer(call: Callable[[], str]) -> str:
    """Return what a call returns, or the reason for which it refuses."""
    try:
        return call()
    except UrlError as error:
        return f"refused: {error.reason}"


def compare(shape: Shape, seed: int, *, texts: int) -> None:
    """Fail if a text of a shape has another canonical form than before, or if that form is not idempotent."""
    rng, resolver = Random(seed), LinkResolver()
    for _ in range(texts):
        size = rng.choice([3, 10, 30, 100])
        url, href, base = shape.url(rng, size), shape.href(rng, size), rng.choice(BASES)
        found = answer(lambda url=url: canonicalize(url))
        assert found == answer(lambda url=url: old_canonical.canonicalize(url)), (seed, url)
        assert found.startswith("refused") or canonicalize(found) == found, (seed, url)
        expected = answer(lambda base=base, href=href: resolve(base, href))
        assert expected == answer(lambda base=base, href=href: old_canonical.resolve(base, href)), (
            seed,
            base,
            href,
        )
        (target,) = resolved(resolver, base, [href])
        assert (target.url or f"refused: {target.rejection}") == expected, (seed, base, href)


def ratios(shape: Shape, seed: int) -> dict[str, float]:
    """Return how many times the CPU time is for twice the size: of one text, and of a page's links."""
    return {"text": ratio(_canonical(shape, seed), SIZE), "links": ratio(_links(shape, seed), 1)}


def _canonical(shape: Shape, seed: int) -> Callable[[int], Callable[[], object]]:
    def work(size: int) -> Callable[[], object]:
        rng = Random(seed)
        texts = [shape.url(rng, size)]
        return lambda: [
            answer(lambda text=text: canonicalize(text, max_length_chars=SIZE)) for text in texts
        ]

    return work


def _links(shape: Shape, seed: int) -> Callable[[int], Callable[[], object]]:
    def work(pages: int) -> Callable[[], object]:
        rng = Random(seed)
        hrefs = [shape.href(rng, 500) for _ in range(LINKS)]
        bases = [f"https://{number}.example/x/y.html" for number in range(pages)]

        def resolve_all() -> None:
            one = LinkResolver()
            for base in bases:
                resolved(one, base, hrefs)

        return resolve_all

    return work
