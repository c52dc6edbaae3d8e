"""Markup that is made to stall the parser, made harmless.

The parser's work grows with the square of the depth of a page (200,000 nested `div`, 1 MB, take it minutes), and with
the square of the number of attributes of one tag. Browsers cut at a depth of 512. Here a page that may be deeper than
`MAX_DEPTH` loses its tags that hold no links and no metadata: its links, their texts and its metas stay.
Ordinary pages pay a count of their tags, or, where they have many thousands, about a third of their parse.
"""

from __future__ import annotations

import re
from collections import Counter

MAX_DEPTH = 2000
MAX_ATTRIBUTES = 2000
_FEW_TAGS = 8000  # that many nested `div`, the worst there is, take the parser 80 ms
_SLICE = 1000
_LONG_TAG_BYTES = 1 << 13

_NAMES = re.compile(rb"<(/?[a-zA-Z][^\t\n\f\r />]{0,20})").findall
_LONG_TAG = re.compile(rb"<[^<]{%d}" % _LONG_TAG_BYTES).search
_TAG_NAME = re.compile(rb"/?([a-zA-Z][^\t\n\f\r />]*)").match
_ATTRIBUTE = re.compile(
    rb"""[\t\n\f\r /]*+[^\t\n\f\r />=]++[\t\n\f\r ]*+(?:=[\t\n\f\r ]*+(?:"[^"]*+"|'[^']*+'|[^\t\n\f\r >]*+))?"""
).match
_VOID = frozenset(b"area base br col embed hr img input link meta param source track wbr".split())
_KEPT = _VOID | frozenset(b"a audio frame frameset iframe object script style textarea title video".split())


def tame(html: bytes) -> bytes:
    """Return `html` (UTF-8), or what is harmless of it, with the same links."""
    if _has_many_tags(html) and _may_be_deep(html):
        html = b"<".join(map(_without_container, html.split(b"<")))
        html = html.replace(_DROPPED, b"")
    if _may_hold_long_tag(html) and _LONG_TAG(html):
        html = b"<".join(map(_with_few_attributes, html.split(b"<")))
    return html


def _has_many_tags(html: bytes) -> bool:
    """Say whether there are more than _FEW_TAGS tags that are not end tags. The cheap questions come first."""
    # The shortest tag that the parser looks up its whole stack for has two letters; 80 % of pages end here.
    if len(html) <= _FEW_TAGS * len(b"<ul>"):
        return False
    tags = html.count(b"<")
    return tags > _FEW_TAGS and tags - html.count(b"</") > _FEW_TAGS


def _may_hold_long_tag(html: bytes) -> bool:
    """Say whether a stretch of half a long tag's length has no `<`: every long tag holds one such stretch whole."""
    size = _LONG_TAG_BYTES // 2
    return any(html.find(b"<", start, start + size) < 0 for start in range(0, len(html) - size + 1, size))


def _may_be_deep(html: bytes) -> bool:
    """Say whether elements may be nested deeper than MAX_DEPTH: start tags less end tags of the same name, by slices.

    It errs on the side of yes, as with thousands of `li` that nobody closed.
    """
    names = _NAMES(html)
    still_open: dict[bytes, int] = {}
    for start in range(0, len(names), _SLICE):
        counts = Counter(names[start : start + _SLICE])
        for name, count in counts.items():
            if name[:1] != b"/" and name not in _VOID:
                still_open[name] = still_open.get(name, 0) + count
        for name, count in counts.items():
            if name[:1] == b"/" and name[1:] in still_open:
                still_open[name[1:]] = max(0, still_open[name[1:]] - count)
        if sum(still_open.values()) > MAX_DEPTH:
            return True
    return False


# NUL is no character of a page (the tokenizer drops or replaces it), so nothing else looks like the mark.
_DROPPED = b"<\x00dropped\x00"


def _without_container(piece: bytes) -> bytes:
    """`piece`: what follows a `<`. Mark its tag for removal unless it is one of _KEPT."""
    match = _TAG_NAME(piece)
    if match is None or match[1].lower() in _KEPT:
        return piece
    return _DROPPED[1:] + piece.partition(b">")[2]


def _with_few_attributes(piece: bytes) -> bytes:
    """`piece`: what follows a `<`. Cut its tag after MAX_ATTRIBUTES attributes."""
    name = _TAG_NAME(piece) if len(piece) > _LONG_TAG_BYTES else None
    if name is None:
        return piece
    place = name.end()
    for _ in range(MAX_ATTRIBUTES):
        attribute = _ATTRIBUTE(piece, place)
        if attribute is None:
            return piece
        place = attribute.end()
    return piece[:place] + b">" + piece[place:].partition(b">")[2]
