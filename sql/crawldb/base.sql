-- Rows as visits and seeds left them, before links are looked at.
-- In: before, turn, after.
select
  key, url, host, domain, status, fetch_time, modified_time, retries, interval_s, score, signature, fetched_time, etag,
  last_modified, redirect_url, redirects, capture_segment, capture_file, capture_offset, capture_time, capture_digest,
  depth, metadata, fetch_status, inlinks, began
from before
where not exists (select 1 from turn where turn.key = before.key)
union all
select
  key, url, host, domain, status, fetch_time, modified_time, retries, interval_s, score, signature, fetched_time, etag,
  last_modified, redirect_url, redirects, capture_segment, capture_file, capture_offset, capture_time, capture_digest,
  depth, metadata, fetch_status, inlinks, began
from after
