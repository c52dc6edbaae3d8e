"""WARC files: records of Krake and of other programs, and the texts in records.

How data flows: `scan` reads records of Krake's own files and goes on behind damage, `walk` ends there, and
`read_archive` reads WARC and ARC of any writer (`reading`). `text` has dates, URIs, fields and digests in WARC's forms.
`crawl_lib.segment` makes Krake's records.
"""

from crawl_lib.warc.reading import (
    NOT_OWN,
    Damage,
    FileId,
    WarcRecord,
    Whole,
    read_archive,
    read_one,
    scan,
    walk,
)
from crawl_lib.warc.text import (
    END,
    base32,
    escape_field,
    microseconds,
    microseconds_of,
    safe_uri,
    split_head,
    utc_text,
    warc_fields,
)
