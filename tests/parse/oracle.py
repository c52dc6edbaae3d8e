"""What lexbor, a parser that builds the tree of a page, makes of it: the oracle for ordinary pages.

It reads the same things off the tree as `parse_html` reads off the tokens. Not for hostile pages: its work grows with
the square of their size.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from selectolax.lexbor import LexborHTMLParser, LexborNode

SOURCES = {
    **dict.fromkeys(
        ("frame", "iframe", "img", "script", "source", "video", "audio", "track", "embed", "input"),
        "src",
    ),
    "object": "data",
}
_REFRESH = re.compile(
    r"\s*(?:\d+[\d.]*|\.[\d.]*)(?=[;,\s])\s*[;,]?\s*(?:url\s*=\s*)?(.*)", re.IGNORECASE | re.DOTALL
)


class Seen(NamedTuple):
    """What a page holds. A link: (element, href, anchor text or None, rel)."""

    links: list[tuple[str, str, str | None, str]]
    title: str | None
    description: str | None
    robots: str | None
    base: str | None
    facts: list[tuple[str, str]]
    """Pairs of a name behind the letter of its kind, and of a value, as `native/links.h` has them; no headings."""


NAMES_OF_METAS = {"property": "m", "name": "m", "itemprop": "i", "http-equiv": "m"}
RELATIONS = ("icon", "apple-touch-icon", "image_src")
OEMBED = ("application/json+oembed", "text/xml+oembed")
MOST_NAME_CHARS, MOST_FACT_CHARS = 100, 2000
MOST_DEPTH, FREE_VALUES, BYTES_OF_VALUE = 64, 256, 16


def read(html: bytes, agent: str = "") -> Seen:
    """Read a page in UTF-8."""
    links, metas, bases, titles, facts = [], [], [], [], []
    root = LexborHTMLParser(html).root
    for node in (
        root.css("[href],[src],meta,title,object,html,time,script:not([src])")
        if root is not None
        else ()
    ):
        attributes = node.attributes
        if node.tag == "title" and not is_in_svg(node):
            titles.append(words(node.text()))
        elif node.tag == "base":
            bases.append((attributes.get("href") or "").strip())
        elif node.tag == "meta" and attributes.get("content"):
            metas.append(attributes)
        facts += facts_of(node, attributes)
        link = link_of(node, attributes)
        if link is not None:
            links.append(link)
    named = [((meta.get("name") or "").strip().lower(), words(meta["content"])) for meta in metas]
    described = [content for name, content in named if name == "description"]
    robots = [content for name, content in named if name in {"robots", agent.lower()} - {""}]
    return Seen(
        links,
        *(next(iter(found), None) for found in (titles, described)),
        ", ".join(robots) if robots else None,
        next(iter(bases), None),
        facts,
    )


def facts_of(node: LexborNode, attributes: dict[str, str | None]) -> list[tuple[str, str]]:
    """The facts of one element."""
    if node.tag == "meta" and attributes.get("content"):
        names = {name: kind for name, kind in NAMES_OF_METAS.items() if name in attributes}
        return [fact(kind, attributes[name], attributes["content"]) for name, kind in names.items()]
    if node.tag == "html":
        tags = [attributes[name] for name in ("lang", "xml:lang") if name in attributes]
        return [fact("l", "", tag) for tag in tags[:1]]
    if node.tag == "time" and "datetime" in attributes:
        return [
            fact(
                "p" if "pubdate" in attributes else "t",
                attributes.get("itemprop"),
                attributes["datetime"],
            )
        ]
    if node.tag == "link" and attributes.get("href"):
        return facts_of_link(attributes)
    if node.tag == "script" and not is_in_svg(node):
        kind = (attributes.get("type") or "").strip().lower()
        json = bare_json(node.text())
        if re.match(r"application/ld\+json(?=[;\s]|$)", kind) and json and is_moderate(json):
            return [("j", json)]
    return []


def facts_of_link(attributes: dict[str, str | None]) -> list[tuple[str, str]]:
    href, rels = attributes["href"], words(attributes.get("rel")).lower().split()
    found = [fact("i", attributes["itemprop"], href)] if "itemprop" in attributes else []
    kind = (attributes.get("type") or "").strip().lower()
    names = [name for name in RELATIONS if name in rels] + [kind] * (
        kind in OEMBED and "alternate" in rels
    )
    return found + [(f"r{name}", (href or "").strip()) for name in names[:1]]


def fact(kind: str, name: str | None, value: str | None) -> tuple[str, str]:
    name = "".join(
        char.lower() if char.isascii() else char for char in words(name)[:MOST_NAME_CHARS].rstrip()
    )
    return f"{kind}{name}", words(value)[:MOST_FACT_CHARS].rstrip()


def bare_json(text: str) -> str:
    """Return a text from its first bracket on, but for those of `<![CDATA[`."""
    start = re.match(r"(?:<!\[CDATA\[|[^\[{])*", text, re.DOTALL)
    return text[start.end() :] if start else text


def is_moderate(json: str) -> bool:
    """Say whether JSON is flat, and not crowded."""
    plain, depth, deepest = re.sub(r'"(?:\\.|[^"\\])*(?:"|$)', "", json, flags=re.DOTALL), 0, 0
    for char in plain:
        depth = max(0, depth + (char in "[{") - (char in "]}"))
        deepest = max(deepest, depth)
    values = sum(map(plain.count, "[{,"))
    return deepest <= MOST_DEPTH and values <= FREE_VALUES + len(json.encode()) // BYTES_OF_VALUE


def link_of(
    node: LexborNode, attributes: dict[str, str | None]
) -> tuple[str, str, str | None, str] | None:
    rel = words(attributes.get("rel")).lower()
    if node.tag in ("a", "area") and "href" in attributes:
        anchor = words(node.text() if node.tag == "a" else attributes.get("alt"))
        return node.tag, (attributes["href"] or "").strip(), anchor, rel
    if node.tag == "link" and attributes.get("href"):
        return "link", (attributes["href"] or "").strip(), "", rel
    if node.tag == "meta" and (attributes.get("http-equiv") or "").strip().lower() == "refresh":
        target = refresh(attributes.get("content") or "")
        return ("meta", target, "", "") if target else None
    value = attributes.get(SOURCES.get(node.tag or "", ""))
    if not value or (node.tag == "input" and (attributes.get("type") or "").lower() != "image"):
        return None
    return (
        node.tag or "",
        value.strip(),
        words(attributes.get("alt")) if node.tag == "img" else "",
        rel,
    )


def words(text: str | None) -> str:
    return " ".join((text or "").split())


def refresh(content: str) -> str:
    match = _REFRESH.match(content)
    target = match[1].strip() if match else ""
    return (target[1:].partition(target[0])[0] if target[:1] in ("'", '"') else target).strip()


def is_in_svg(node: LexborNode) -> bool:
    parent = node.parent
    while parent is not None and parent.tag != "svg":
        parent = parent.parent
    return parent is not None
