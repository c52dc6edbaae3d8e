"""HTML from links and words. The pages are plain but valid; the oddities are in the links."""

from __future__ import annotations

import random
from collections.abc import Sequence
from html import escape

from demo.model import Link

# Enough words for a text and for ranks; the odds are like Zipf's (the first words come far more often).
_TEXT = (
    "the of and a to in is water sea octopus arm ink reef tide wave boat rope net salt fish crab shell storm harbour"
    " island coast deep dark current pressure sound signal ship sailor captain legend north myth giant tentacle"
    " crawler archive page link graph queue key node segment seed host delay robot caf\u00e9 na\u00efve \u00fcber"
    " fj\u00f6rd \u00e5ngstr\u00f6m \u00e9t\u00e9 measure round batch export rank index scale whale squid kelp lantern"
)
WORDS = _TEXT.split()
_HEAD_ELEMENTS = frozenset({"link", "meta", "base"})


def repeatable(name: str) -> random.Random:
    """Return a generator with equal numbers for a name on every machine."""
    return random.Random(name)  # noqa: S311 - nothing secret


def words(rng: random.Random, count: int) -> str:
    """Return `count` words, common words more often."""
    return " ".join(WORDS[int(len(WORDS) * rng.random() ** 2.5)] for _ in range(count))


def tag(link: Link) -> str:
    """Return the HTML of one link."""
    href = escape(link.href)
    rel = f' rel="{link.rel}"' if link.rel else ""
    match link.element:
        case "a":
            return f'<a href="{href}"{rel}>{escape(link.anchor)}</a>'
        case "area":
            return f'<map name="m"><area href="{href}"{rel} alt="{escape(link.anchor)}"></map>'
        case "link":
            return f'<link{rel} href="{href}">'
        case "meta":
            return f'<meta http-equiv="refresh" content="30; url={href}">'
        case "script" | "iframe":
            return f'<{link.element} src="{href}"></{link.element}>'
        case _:
            return f'<{link.element} src="{href}">'


def head(title: str, links: Sequence[Link], extra: str = "") -> str:
    """Return the HTML up to the body; `extra` precedes the links (meta, base)."""
    tags = "".join(f"{tag(link)}\n" for link in links if link.element in _HEAD_ELEMENTS)
    return f"<!DOCTYPE html>\n<html><head>{extra}<title>{escape(title)}</title>\n{tags}</head>\n"


def page(
    rng: random.Random, title: str, links: Sequence[Link], *, extra: str = "", size_words: int = 80
) -> str:
    """Return a page of `size_words` words with links.

    Links of the head are in the head, all others between the words.
    """
    body_links = [link for link in links if link.element not in _HEAD_ELEMENTS]
    share = max(1, size_words // (len(body_links) + 1))
    parts = [f"<p>{words(rng, share)}\n{tag(link)}</p>\n" for link in body_links]
    body = f"<h1>{escape(title)}</h1>\n{''.join(parts)}<p>{words(rng, share)}</p>"
    return f"{head(title, links, extra)}<body>{body}</body></html>\n"


def frameset(title: str, links: Sequence[Link]) -> str:
    """Return a page of frames; every link must be a `frame`."""
    return f'{head(title, ())}<frameset cols="50%,50%">\n{"".join(tag(link) for link in links)}\n</frameset></html>\n'
