-- Where the exported records lie, in the order in which the WARC files are read.
-- In: nodes (the export's `pages.parquet`).
select node_id, segment, warc_file, warc_offset, warc_length
from nodes
order by segment, warc_file, warc_offset
