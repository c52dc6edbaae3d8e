"""Answers from the table of terms: `krake terms get|search`. The crawl stays unchanged."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from crawl_lib.errors import InputError
from crawl_lib.ranks import give_ranks
from crawl_lib.stores import Stores
from crawl_lib.terms.table import TERMS
from crawl_lib.text import count_words, is_long_word, nfc
from crawl_lib.urls import key_of
from crawl_lib.versions import Version, Versions, VersionWork, columns

MAX_WORDS = 32
"""Limit of words in a question. Further words do not count."""
MAX_CHARS = 500
_FOUND = columns("key bytes!, url text!, tf_idf number!")
Row = dict[str, Any]


def postings_of(stores: Stores, text: str) -> list[Row]:
    """Return the table's row for each different word of `text`.

    A row has `word`, `pages`, `postings` (url, tf_idf). Words are read as in the text stage: lower case, NFC, pairs of
    characters in scripts without spaces. Raises InputError before the first version, DamagedFileError, StorageError,
    StoppedError.
    """
    versions, version = Versions(stores, TERMS), _newest(stores)
    words = [word for word in count_words(nfc(text[:MAX_CHARS])) if not is_long_word(word)][
        :MAX_WORDS
    ]
    found = ((word, versions.rows_of(version, word.encode())) for word in words)
    return [
        {"word": word, "pages": row["pages"], "postings": row["postings"]}
        for word, batches in found
        for batch in batches
        for row in batch.to_pylist()
    ]


def search_terms(stores: Stores, texts: Iterable[str], *, count: int = 10) -> list[Row]:
    """Return the best pages for some words.

    A page has `url`, `score`, `words` (the number of different words found there) and `rank`. A score is the sum of the
    words' tf-idf, times the rank of the page. Ranks are divided by their mean; a page without a rank has 1. Only the
    postings of the table count. `count`: limit of pages. Raises the errors of `postings_of`.
    """
    rows = postings_of(stores, " ".join(texts))
    found = (
        {**posting, "key": key_of(posting["url"])} for row in rows for posting in row["postings"]
    )
    with VersionWork.to_read(stores) as work:
        work.keep_rows("found", _FOUND, found)
        give_ranks(work)
        work.engine.values("limits", pa.table({"most": pa.array([count], pa.int64())}))
        batches = work.engine.stream("terms/search", max(1, count), "terms.search")
        return [row for batch in batches for row in batch.to_pylist()]


def _newest(stores: Stores) -> Version:
    version = Versions(stores, TERMS).newest()
    if version is None:
        raise InputError(
            f"{stores.crawl.path}: has no table of terms yet; run `krake terms update`"
        )
    return version
