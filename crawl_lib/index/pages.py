"""The table `pages.parquet` next to an index: the often changing facts, a row for each page of the index."""

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
"""`digest`: of the document's sources. `boost`: divided by the mean over all indexed pages; 1 for a page without a
boost. `near`: the key of the first page of the page's group of near duplicates, null without a group.
`unavailable_after`: the page asks results not to show it after this time. The other columns are the place of the
page's capture. Rows are in the order of keys."""
