"""The links of a page one by one, where the library has them by columns."""

from __future__ import annotations

from dataclasses import fields
from typing import NamedTuple

from crawl_lib.parse import Page


class Link(NamedTuple):
    """A row of `Links`."""

    href: str
    anchor: str
    rel: str
    element: str
    followable: bool
    nofollow: bool


def each_link(page: Page) -> list[Link]:
    """The links in document order."""
    columns = [getattr(page.links, field.name) for field in fields(page.links)]
    return [Link._make(row) for row in zip(*columns, strict=True)]
