"""JSON-LD of a page: the things that it describes, in terms of schema.org (https://www.w3.org/TR/json-ld11/).

Strangers wrote it. The scanner gives 32 blocks at most, none nested deeply (`native/links.c`); here the number of
things and of items is limited.
"""

import json
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

Thing = dict[str, Any]

_MAX_THINGS, _MAX_SUBJECTS, _MAX_ITEMS = 200, 16, 20
"""Things that are looked at in a page, those that count, and items of a list."""
_NESTED = ("@graph", "mainEntity")
_SUBJECTS = frozenset(
    """Report VideoObject Product Recipe Dataset Book Review Event Movie Course HowTo CreativeWork SoftwareApplication
    PodcastEpisode MusicRecording""".split()  # noqa: SIM905
)
_ARTICLES, _PAGES = ("Article", "Posting"), "Page"
"""Ends of names of schema.org's kinds of articles, such as NewsArticle and BlogPosting, and of pages."""
_SITE = "WebSite"
_DECODER = json.JSONDecoder(strict=False)


class JsonLd:
    """The things of a page's blocks of JSON-LD. Blocks that are no JSON do not count.

    `subjects`: things that the page may be about, pages behind all others; `sites`: the site that it belongs to.
    """

    def __init__(self, blocks: Iterable[str]) -> None:
        things = list(_things(blocks))
        self._by_id = {
            one["@id"]: one for one in reversed(things) if isinstance(one.get("@id"), str)
        }
        self.sites = [one for one in things if _SITE in kinds_of(one)][:_MAX_SUBJECTS]
        subjects = [one for one in things if any(map(is_subject, kinds_of(one)))]
        subjects.sort(key=lambda one: all(kind.endswith(_PAGES) for kind in kinds_of(one)))
        self.subjects = subjects[:_MAX_SUBJECTS]

    def items(self, value: object) -> list[object]:
        """Return a value as a list of its first items.

        A thing named by its id replaces the name.
        """
        values = value[:_MAX_ITEMS] if isinstance(value, list) else [value]
        return [self._whole(one) if isinstance(one, dict) else one for one in values]

    def texts(self, value: object, *names: str) -> list[str]:
        """Return the texts of a value, or of its items.

        `names`: properties with a thing's text.
        """
        values = [_first(one, names) if isinstance(one, dict) else one for one in self.items(value)]
        return [one for one in values if isinstance(one, str)]

    def _whole(self, thing: Thing) -> Thing:
        name = thing.get("@id")
        is_reference = isinstance(name, str) and all(key.startswith("@") for key in thing)
        return self._by_id.get(name, thing) if is_reference else thing


def kinds_of(thing: Thing) -> list[str]:
    """Return the names of a thing's types, without the address of schema.org."""
    kinds = thing.get("@type")
    kinds = kinds[:_MAX_ITEMS] if isinstance(kinds, list) else [kinds]
    return [kind.rpartition("/")[2] for kind in kinds if isinstance(kind, str)]


def is_subject(kind: str) -> bool:
    """Say whether a page may be about a thing of this type."""
    return kind in _SUBJECTS or kind.endswith((*_ARTICLES, _PAGES))


def _things(blocks: Iterable[str]) -> Iterator[Thing]:
    """Yield the things of blocks, in page order.

    Text behind a block's JSON does not count.
    """
    left = _MAX_THINGS
    for block in blocks:
        try:
            waiting = deque([_DECODER.raw_decode(block)[0]])
        except ValueError:
            continue
        while waiting and left:
            left -= 1
            thing = waiting.popleft()
            if isinstance(thing, list):
                waiting.extendleft(reversed(thing[:_MAX_ITEMS]))
            elif isinstance(thing, dict):
                yield thing
                waiting.extend(thing[name] for name in _NESTED if name in thing)


def _first(thing: Thing, names: tuple[str, ...]) -> object:
    return next((thing[name] for name in names if isinstance(thing.get(name), str)), None)
