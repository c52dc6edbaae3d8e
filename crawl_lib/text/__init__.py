"""The text stage: what each page says, its language, its words, and a signature that tells whether it has changed.

How data flows: `extract_text` takes committed segments, and reads the records of their pages in order of file and
offset (`stage`). Child processes that have limits and nothing to steal (`children`, `child`) get the records one by
one. A child undoes codings and charset, finds the main text (`extract`, `pdf`), puts the text into NFC (`normal`),
counts the words and makes the signature (`profile`), and reads what the page says of itself (`parse.facts`). Each
segment gets one table, `<text.directory>/<folder>/<node>/text-<id>.parquet`, by a rename. The id is of the segment's
digest and of what extracts: a segment that changes, or another version, has another table, and the older one goes.

A page that kills its child is counted, and has no text; its signature is then the digest of its content. All of it is
made of WARC: deleting it loses time only.
"""

from typing import TYPE_CHECKING

from crawl_lib.lazy import loads_later

if TYPE_CHECKING:
    from crawl_lib.text.normal import nfc
    from crawl_lib.text.output import TEXT_OUTPUT
    from crawl_lib.text.profile import count_words, is_long_word, text_profile
    from crawl_lib.text.stage import (
        AGAIN,
        TEXT_SCHEMA,
        TextReport,
        extract_text,
        read_text,
        text_table,
    )
else:
    # A child loads `child` alone.
    __getattr__ = loads_later(
        __name__,
        {
            "output": ("TEXT_OUTPUT",),
            "normal": ("nfc",),
            "profile": ("count_words", "is_long_word", "text_profile"),
            "stage": (
                "AGAIN",
                "TEXT_SCHEMA",
                "TextReport",
                "extract_text",
                "read_text",
                "text_table",
            ),
        },
    )
