"""The text stage: the main text of each page, its language, its words, and a signature that shows changes.

How data flows: `extract_text` takes committed segments, and reads the records of their pages in order of file and
offset (`stage`). Child processes with limits and without secrets (`children`, `child`) get the records one by one.
A child undoes codings and charset, finds the main text (`extract`, `pdf`), puts the text into NFC (`normal`),
counts the words and makes the signature (`profile`), and reads the page's facts about itself (`parse.facts`). Each
segment gets one table, `<text.directory>/<folder>/<node>/text-<id>.parquet`, by a rename. The id is a digest of the
segment, the options and the extractor's version. After a change of these, the stage makes another table, and deletes
the older one.

A page that kills its child is counted, and has no text; its signature is then the digest of its content. All tables
come from WARC files: their deletion costs time only.
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
