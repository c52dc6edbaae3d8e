-- The rows with the scores of a rank, 0 where it lacks a URL.
-- In: crawldb (rows of the newest version), ranks (key, score).
select
  crawldb.key, url, host, domain, status, fetch_time, modified_time, retries, interval_s,
  coalesce(ranks.score, cast(0 as decimal(18, 9))) as score, signature, fetched_time, etag, last_modified, redirect_url,
  redirects, capture_segment, capture_file, capture_offset, capture_time, capture_digest, depth, metadata, fetch_status,
  inlinks
from crawldb
left join ranks on ranks.key = crawldb.key
order by crawldb.key
