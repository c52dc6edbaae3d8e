-- The newest full capture of each page, segment by segment.
-- In: visits (rows of `pages` with segment, its place among the inputs).
select key, url, host, time, segment
from (
  select
    key, url, host, time, segment,
    row_number() over (partition by key order by time desc, segment desc, warc_file desc, warc_offset desc) as place
  from visits
  where status = 200 and refers_to is null
) as ranked
where place = 1
order by segment, key
