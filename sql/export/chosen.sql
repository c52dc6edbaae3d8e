-- The capture of each crawled page that the export takes, in ascending order of keys: the row's rank is the NodeID.
-- The capture wins that was seen last; equal times are decided by segment, file and offset (the last one).
-- In: captures (rows of `pages` with seen, and segment, the place of their segment in `inputs`), accepted (mime).
-- Out: all columns of the capture, and what chose it; `pages.parquet` takes its own columns by name.
select *
from (
  select
    captures.*,
    row_number() over (partition by key order by seen desc, segment desc, warc_file desc, warc_offset desc) as place
  from captures
  where status = 200
    and lower(coalesce(mime_detected, '')) in (select mime from accepted)
) as ranked
where place = 1
order by key
