"""Captures: the capture of each page that counts, with the page's text and the page's facts about itself.

How data flows: `Captures.of` takes the captures of the CrawlDb, or, with `frontier.order: fifo`, the newest capture of
each page. `Captures.read` has the text stage make missing texts, and yields the pages with their texts.

`update_captures` makes the table of captures with the place of each URL's newest capture. `KnownCaptures` looks a URL
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
