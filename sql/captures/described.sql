-- Captures with what their pages say of themselves, and the places of their records, segment by segment.
-- In: captured (key, url, host, time, segment), visits (rows of `pages` with segment, its place among the inputs).
select
  captured.key, captured.url, captured.host, captured.time, captured.segment,
  found.title, found.mime_detected, found.canonical_url, found.meta_robots,
  found.warc_file, found.warc_offset, found.warc_length
from captured
left join (
  select
    key, segment, time, title, mime_detected, canonical_url, meta_robots, warc_file, warc_offset, warc_length,
    row_number() over (partition by key, segment, time order by warc_file desc, warc_offset desc) as place
  from visits
  where status = 200 and refers_to is null
) as found
  on found.key = captured.key and found.segment = captured.segment and found.time = captured.time and found.place = 1
order by captured.segment, captured.key
