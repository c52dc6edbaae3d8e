"""`krake segment drop`: takes pages out of all committed segments, without changing their files.

The dropped keys are in a file next to each manifest (`segment.manifest`), and readers leave the pages out from then on;
`compact` makes files without the pages. The steps of one segment: a mark in the iteration's folder, so that
`krake status` looks closer (`curate.drop.marked`), then the file of keys (`curate.drop.written`). A second run finds
the pages dropped already. The newest segment comes first, so that after a kill no visit without a body remains whose
full capture is dropped. The keys stay known, so the pages are not crawled again, until `krake forget`.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from crawl_lib.crawldir import FileName
from crawl_lib.derived import PagePlace
from crawl_lib.durable import reached
from crawl_lib.errors import TargetExistsError
from crawl_lib.export import page_key
from crawl_lib.outputs import OUTPUTS
from crawl_lib.repair import finish_all_swaps
from crawl_lib.segment import DroppedLists, SegmentReader
from crawl_lib.stores import Stores


@dataclass
class DropReport:
    """The work of a drop.

    `dropped`: pages taken out now, by segment; `already`: pages taken out before, by segment. `unknown`: named pages
    that no segment has. `places`: files and folders that still have one of these pages, and until when. `rows`: deleted
    rows of the real-time service's table.
    """

    dropped: dict[str, list[str]] = field(default_factory=dict)
    already: dict[str, list[str]] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    places: list[PagePlace] = field(default_factory=list)
    dry_run: bool = False
    rows: int = 0


def drop_pages(stores: Stores, pages: Sequence[str], *, dry_run: bool = False) -> DropReport:
    """Drop pages from every segment.

    `pages`: URLs or keys; any other text is an error. Half-done repairs are carried out first: until then a segment may
    have no visible place. Raises InputError, StorageError, and DamagedFileError naming a segment that has to be
    salvaged first.
    """
    names = {page_key(stores, text): text for text in pages}
    report = DropReport(dry_run=dry_run)
    if not dry_run:
        finish_all_swaps(stores)
    unknown, segments_of = set(names), dict[bytes, list[str]]()
    for segment in reversed(stores.crawl.segments()):
        stores.report(searching=str(segment), found=len(names) - len(unknown), of=len(names))
        reader = SegmentReader(stores.storage, segment.path)
        out, new = names.keys() & reader.taken_out, set[bytes]()
        for batch in reader.pages(["key"], with_dropped=True):
            new |= names.keys() & set(batch.column(0).to_pylist()) - out
        for key in out | new:
            segments_of.setdefault(key, []).append(str(segment))
        if new or out & reader.dropped:
            report.places.append(
                PagePlace(
                    segment.path,
                    "`krake segment compact` takes dropped pages out of the WARC files",
                )
            )
        for pages_of, keys in ((report.already, out), (report.dropped, new)):
            if keys:
                pages_of[str(segment)] = sorted(names[key] for key in keys)
        if new and not dry_run:
            with suppress(TargetExistsError):
                stores.storage.write_bytes(stores.crawl.at(segment.folder, FileName.DROPPED), b"")
            reached("curate.drop.marked")
            DroppedLists(stores.storage, segment.path).write(new)
            reached("curate.drop.written")
        unknown -= out | new
    report.unknown = sorted(names[key] for key in unknown)
    report.places += [
        place for output in OUTPUTS for place in output.places_of(stores, segments_of)
    ]
    return report
