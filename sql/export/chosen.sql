-- The capture of each crawled page that the export takes, in ascending order of keys: the row's rank is the NodeID.
-- The capture wins that was seen last; equal times are decided by segment, file and offset (the last one).
-- In: captures (rows of `pages` with seen, and segment, the place of their segment in `inputs`), accepted (mime).
select
  key, url, host, time, ip, outcome, status, mime_declared, mime_detected, charset, length, digest, title, description,
  meta_robots, canonical_url, redirect_url, via_key, depth, attempts, duration_ms, truncated, etag, last_modified,
  warc_file, warc_offset, warc_length, metadata, error, parse_error,
  image_url, author, published, modified, language, segment
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
