"""Visits that found a page as it was: what makes one, and the WARC record in place of its body.

A 304 to a request that named an earlier capture, or the payload of that capture once more, byte for byte (in whatever
chunks): then the body is not written again. A `revisit` record says which full capture has the body; so does
`refers_to` of the row in `pages`. It has the headers that came, but for those of a 304, which a player would take for
the page's: they are in the metadata record. Nothing is read out of such a visit: content, links and what an HTML page
says are those of the full capture, which is never a revisit itself.

Source: https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/#revisit
"""

from crawl_lib.records import Earlier, Fetched, TakenUrl
from crawl_lib.segment.encoder import has_certain_end
from crawl_lib.segment.payload import payload_of
from crawl_lib.states import Outcome


def revisited(taken: TakenUrl, fetched: Fetched) -> Earlier | None:
    """Return the capture that has an answer's body.

    None: the answer is kept whole. A truncated body cannot be compared, nor can a body with an uncertain beginning.
    """
    earlier = Earlier.of(taken.queued.earlier)
    if earlier is None or fetched.outcome is Outcome.NOT_MODIFIED:
        return earlier
    if fetched.outcome is not Outcome.OK or fetched.truncated or not has_certain_end(fetched.head):
        return None
    payload = payload_of(fetched)
    return earlier if payload.is_whole and earlier.digest == payload.sha1.hex() else None
