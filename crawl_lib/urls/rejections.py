"""Why a URL did not become one to fetch: the one list of names, for counters, manifests and task results."""

from enum import StrEnum


class Rejection(StrEnum):
    """The reason for which a discovered URL or a seed was left out. Each is counted under its name, none is silent.

    The first four come from the text alone, the next from the page it was found on, the last from the crawl.
    """

    INVALID = "invalid"
    """Not a URL: the WHATWG parser fails on it, or no host is left."""
    SCHEME = "scheme"
    """A URL whose scheme is neither http nor https."""
    TOO_LONG = "too_long"
    """Its canonical form has more than `urls.max_length_chars` characters, or its text is far longer."""
    PORT = "port"
    """Its port is one that browsers refuse (https://fetch.spec.whatwg.org/#port-blocking), such as 25."""
    ELEMENT = "element"
    """Found in an element that is recorded only (img, script, link rel=stylesheet...)."""
    NOFOLLOW = "nofollow"
    """The link (rel) or its page (meta robots, X-Robots-Tag) says nofollow, and `parse.follow_nofollow` is off."""
    PAGE_LIMIT = "page_limit"
    """Its page had more than `parse.max_links_per_page` links; this one was beyond them."""
    FILTER = "filter"
    """A filter of `urls.filters` rejects it."""
    RULE = "rule"
    """A `-` rule of `urls.rules` matched first."""
    SCOPE = "scope"
    """Its host (or domain, by `urls.scope`) is not one of the seeds'."""
    DEPTH = "depth"
    """More than `urls.max_depth` links away from its seed."""
    PATH_DEPTH = "path_depth"
    """Its path has more than `traps.max_path_segments` segments."""
    REDIRECT_LIMIT = "redirect_limit"
    """It is the target of one redirect, meta refresh or index of sitemaps more than `fetch.max_redirects`."""
    HOST_LIMIT = "host_limit"
    """`urls.max_pages_per_host` URLs of its host were queued before it."""
    SESSION_ID = "session_id"
    """`traps.max_sessions` URLs that differ from it in session ids only were queued before it."""
    REPEATED_SEGMENT = "repeated_segment"
    """Its path repeats a segment, and `traps.max_repeated` such paths of the same segments were queued before it."""
    CALENDAR = "calendar"
    """`traps.max_dates` URLs that differ from it in dates only were queued before it."""
    QUERY_EXPLOSION = "query_explosion"
    """Each part of its query is in `traps.max_combined` URLs of its path that were queued before it."""
    SIMILAR = "similar"
    """`traps.max_similar` pages of its pattern had nearly the same words, of the newest twice as many; or it was found
    on a page whose words `traps.max_equal` pages of one domain have."""
    KNOWN = "known"
    """Its key is in the key store already: it was queued or fetched before."""
