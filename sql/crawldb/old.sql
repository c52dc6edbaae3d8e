-- Rows as they are before the first event of each URL.
-- In: old.
select
  key, url, host, domain, status, fetch_time, modified_time, retries, interval_s, score, signature, fetched_time, etag,
  last_modified, redirect_url, redirects, capture_segment, capture_file, capture_offset, capture_time, capture_digest,
  depth, metadata, fetch_status, inlinks, cast(null as timestamp) as began
from old
