-- How many bytes the exported records have in their WARC files.
-- In: nodes (the export's `pages.parquet`).
select coalesce(sum(warc_length), 0) as bytes
from nodes
