"""The matrix: the earlier state of a URL, the new observation, and the new state. `update` joins it.

The same table is in `docs/recrawl.md`. `others`: each other status of a page. `kept`: the earlier status; `restored`:
the status from before the row was an orphan. A requisite keeps the status: for a requisite the table says what its
`fetch_status` becomes.
"""

from enum import StrEnum

import pyarrow as pa

from crawl_lib.crawldb.table import Status
from crawl_lib.states import Outcome

NONE = "none"
"""The stored status of a URL without a row."""


class Seen(StrEnum):
    """The statement of a capture, a link or a seed about a URL, next to the stored status."""

    FIRST = "first"
    """Content, and none is known."""
    CHANGED = "changed"
    """Content with another signature."""
    SAME = "same"
    """Content with the known signature."""
    NOT_MODIFIED = "not_modified"
    """304, or a revisit: the full capture has the same content."""
    LOST = "lost"
    """The same, but that full capture is gone."""
    REDIRECT_TEMPORARY = "redirect_temporary"
    """A temporary redirect."""
    REDIRECT_PERMANENT = "redirect_permanent"
    """A redirect of status 301 or 308."""
    GONE = "gone"
    """Any other final outcome, and the last of several passing failures."""
    PASSING = "passing"
    """A passing failure: the row of `pages` has a `retry_at`."""
    PARSE_FAILED = "parse_failed"
    """Unreadable content."""
    LINK = "link"
    """A link or redirect to the URL, without a capture since."""
    NOTHING = "nothing"
    """No event since the last version."""
    SEED_KEEP = "seed_keep"
    """A seed, `crawldb.seeds: keep`."""
    SEED_UPDATE = "seed_update"
    """A seed, `crawldb.seeds: update`."""
    SEED_OVERWRITE = "seed_overwrite"
    """A seed, `crawldb.seeds: overwrite`."""


SEEN_OF_OUTCOME = dict.fromkeys(Outcome, str(Seen.GONE)) | {
    Outcome.OK: "content",
    Outcome.REDIRECT: "redirect",
    Outcome.NOT_MODIFIED: str(Seen.NOT_MODIFIED),
}
"""The meaning of a final outcome; content and redirects are told apart by the query."""

MATRIX = """
| seen | none | others | duplicate | orphan | next visit | content |
|---|---|---|---|---|---|---|
| first | fetched | fetched | fetched | fetched | interval | new |
| changed | fetched | fetched | fetched | fetched | sooner | new |
| same | not_modified | not_modified | duplicate | not_modified | later | same |
| not_modified | not_modified | not_modified | duplicate | not_modified | later | kept |
| lost | unfetched | unfetched | unfetched | unfetched | at once | none |
| redirect_temporary | redirected_temporary | redirected_temporary | redirected_temporary | redirected_temporary | interval | kept |
| redirect_permanent | redirected_permanent | redirected_permanent | redirected_permanent | redirected_permanent | interval | kept |
| gone | gone | gone | gone | gone | longer | kept |
| passing | unfetched | kept | kept | kept | retry | kept |
| parse_failed | parse_failed | parse_failed | parse_failed | parse_failed | longer | kept |
| link | unfetched | kept | kept | restored | kept | kept |
| nothing | unfetched | kept | kept | kept | kept | kept |
| seed_keep | unfetched | kept | kept | restored | kept | kept |
| seed_update | unfetched | kept | kept | restored | kept | kept |
| seed_overwrite | unfetched | unfetched | unfetched | unfetched | at once | none |
"""  # noqa: E501 - a table


def matrix_table() -> pa.Table:
    """Return the matrix of statuses, a row for each pair.

    The columns are `stored`, `seen`, the resulting status `believed`, `visit` and `content`. Raises KeyError if a pair
    is missing.
    """
    head, _, *lines = (
        [cell.strip() for cell in line.split("|")[1:-1]] for line in MATRIX.strip().splitlines()
    )
    of_pages = [str(status) for status in Status if status is not Status.REQUISITE]
    others = [status for status in of_pages if status not in head]
    rows = [
        {"stored": one, "seen": line[0], "believed": cell, "visit": line[-2], "content": line[-1]}
        for line in lines
        for stored, cell in zip(head[1:-2], line[1:-2], strict=True)
        for one in (others if stored == "others" else [stored])
    ]
    pairs = {(row["stored"], row["seen"]) for row in rows}
    missing = {(one, str(seen)) for one in (NONE, *of_pages) for seen in Seen} - pairs
    if missing:
        raise KeyError(f"the matrix lacks {sorted(missing)}")
    return pa.Table.from_pylist(rows)


def outcome_table() -> pa.Table:
    """Return what each outcome means: columns `outcome` and `seen`."""
    return pa.Table.from_pylist(
        [{"outcome": str(one), "seen": seen} for one, seen in SEEN_OF_OUTCOME.items()]
    )
