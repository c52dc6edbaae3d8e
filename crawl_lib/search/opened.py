"""An open index for searches."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import tantivy

from crawl_lib.errors import DamagedFileError
from crawl_lib.index import PAGES_FILE, Fields
from crawl_lib.search.facts import COLUMNS, PageFacts
from crawl_lib.search.places import CapturePlaces
from crawl_lib.search.suggest import Vocabulary


@dataclass(frozen=True)
class OpenIndex:
    """A version of the index: searches change nothing, and any number of threads may search.

    The files of an open index stay readable, also after a deletion of the version.
    """

    number: int
    fields: Fields
    searcher: tantivy.Searcher
    facts: PageFacts
    vocabulary: Vocabulary
    places: CapturePlaces | None = None
    """The places of captures; None for an index in memory."""

    @classmethod
    def of(
        cls,
        number: int,
        fields: Fields,
        index: tantivy.Index,
        pages: pa.Table,
        places: CapturePlaces | None = None,
    ) -> "OpenIndex":
        """Return the current index.

        `pages`: the columns `COLUMNS` of its pages, in key order.
        """
        index.config_reader("manual")
        index.reload()
        searcher = index.searcher()
        return cls(number, fields, searcher, PageFacts(pages), Vocabulary(fields, searcher), places)


def open_index(folder: Path, number: int, languages: Sequence[str]) -> OpenIndex:
    """Open a version of the index.

    `languages`: the version's own. Raises DamagedFileError naming the folder, unless this version of Tantivy reads the
    index, and the fields are equal.
    """
    fields = Fields(languages)
    try:
        index = tantivy.Index.open(str(folder))
        if index.schema == fields.schema:
            fields.analysers.register(index)
            pages = pq.read_table(folder / PAGES_FILE, columns=list(COLUMNS))
            opened = OpenIndex.of(number, fields, index, pages, CapturePlaces(folder / PAGES_FILE))
            pa.default_memory_pool().release_unused()  # the table took as much memory as all facts of its rows
            return opened
    except (ValueError, OSError, pa.ArrowException) as error:
        raise _unusable(folder, str(error)) from error
    raise _unusable(folder, "another version of Krake made it, with other fields")


def _unusable(folder: Path, problem: str) -> DamagedFileError:
    return DamagedFileError(
        f"{folder}: has no index that can be searched: {problem}; `krake index update` makes a new version"
    )
