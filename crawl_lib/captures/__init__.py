"""Captures: which capture of each page counts, with the page's text, and with what the page says of itself.

How data flows: `Captures.of` takes the captures that the CrawlDb knows, or, with `frontier.order: fifo`, the newest of
each page. `Captures.read` has the text stage make missing texts, and yields the pages with their texts.

`update_captures` makes the table of captures, where the newest capture of each URL is, and `KnownCaptures` looks a URL
up in this table (`places`).
"""

from crawl_lib.captures.captures import Captures, Row
from crawl_lib.captures.places import (
    CAPTURES_OUTPUT,
    PLACES,
    PLACES_SCHEMA,
    CaptureRef,
    KnownCaptures,
    StaleError,
    update_captures,
)
