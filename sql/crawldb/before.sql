-- Rows as they are before an event of each URL: as the last version has them, or as earlier events left them.
-- In: old, states.
select
  key, url, host, domain, status, fetch_time, modified_time, retries, interval_s, score, signature, fetched_time, etag,
  last_modified, redirect_url, redirects, capture_segment, capture_file, capture_offset, capture_time, capture_digest,
  depth, metadata, fetch_status, inlinks, cast(null as timestamp) as began
from old
where not exists (select 1 from states where states.key = old.key)
union all
select
  key, url, host, domain, status, fetch_time, modified_time, retries, interval_s, score, signature, fetched_time, etag,
  last_modified, redirect_url, redirects, capture_segment, capture_file, capture_offset, capture_time, capture_digest,
  depth, metadata, fetch_status, inlinks, began
from states
