"""What lexbor, a parser that builds the tree of a page, makes of it: the oracle for ordinary pages.

It reads the same things off the tree as `parse_html` reads off the tokens. Not for hostile pages: its work grows with
the square of their size.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from selectolax.lexbor import LexborHTMLParser, LexborNode

SOURCES = {
    **dict.fromkeys(("frame", "iframe", "img", "script", "source", "video", "audio", "track", "embed", "input"), "src"),
    "object": "data",
}
_REFRESH = re.compile(r"\s*(?:\d+[\d.]*|\.[\d.]*)(?=[;,\s])\s*[;,]?\s*(?:url\s*=\s*)?(.*)", re.IGNORECASE | re.DOTALL)


class Seen(NamedTuple):
    """What a page holds. A link: (element, href, anchor text or None, rel)."""

    links: list[tuple[str, str, str | None, str]]
    title: str | None
    description: str | None
    robots: str | None
    base: str | None


def read(html: bytes, agent: str = "") -> Seen:
    """Read a page in UTF-8."""
    links, metas, bases, titles = [], [], [], []
    root = LexborHTMLParser(html).root
    for node in root.css("[href],[src],meta,title,object") if root is not None else ():
        attributes = node.attributes
        if node.tag == "title" and not is_in_svg(node):
            titles.append(words(node.text()))
        elif node.tag == "base":
            bases.append((attributes.get("href") or "").strip())
        elif node.tag == "meta" and attributes.get("content"):
            metas.append(attributes)
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
    )


def link_of(node: LexborNode, attributes: dict[str, str | None]) -> tuple[str, str, str | None, str] | None:
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
    return node.tag or "", value.strip(), words(attributes.get("alt")) if node.tag == "img" else "", rel


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
