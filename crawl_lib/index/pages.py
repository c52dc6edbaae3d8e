"""The table `pages.parquet` next to an index: what changes often, a row for each page of the index."""

import pyarrow as pa

_FIELDS: "list[pa.Field[pa.DataType]]" = [
    pa.field("key", pa.binary(20), nullable=False),
    pa.field("digest", pa.binary(20), nullable=False),
    pa.field("boost", pa.float32(), nullable=False),
    pa.field("host", pa.string(), nullable=False),
    pa.field("near", pa.binary(20)),
    pa.field("unavailable_after", pa.timestamp("us", "UTC")),
    pa.field("segment", pa.string(), nullable=False),
    pa.field("warc_file", pa.string(), nullable=False),
    pa.field("warc_offset", pa.int64(), nullable=False),
    pa.field("warc_length", pa.int64(), nullable=False),
]
PAGES_SCHEMA = pa.schema(_FIELDS)
"""`digest`: of what the document was made of. `boost`: divided by the mean over all indexed pages; 1 where a page has
none. `near`: the key of the first page of its group of near duplicates, null where it is in none. `unavailable_after`:
when the page asks to be no longer found. The rest is the place of its capture. Rows are in the order of keys."""
