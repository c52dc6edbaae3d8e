-- One row for each URL, of those that were normalised to it, in order of keys. Domains of rows that moved are null.
-- In: ruled (rows of the table, with old_key and is_moved).
select
  key, url, host, domain, status, fetch_time, modified_time, retries, interval_s, highest_score as score, signature,
  fetched_time, case when is_moved = 0 then etag end as etag,
  case when is_moved = 0 then last_modified end as last_modified, redirect_url, least_redirects as redirects,
  case when is_moved = 0 then capture_segment end as capture_segment,
  case when is_moved = 0 then capture_file end as capture_file,
  case when is_moved = 0 then capture_offset end as capture_offset,
  case when is_moved = 0 then capture_time end as capture_time,
  case when is_moved = 0 then capture_digest end as capture_digest,
  least_depth as depth, metadata, fetch_status, all_inlinks as inlinks
from (
  select
    ruled.*,
    min(depth) over (partition by key) as least_depth, min(redirects) over (partition by key) as least_redirects,
    max(score) over (partition by key) as highest_score,
    cast(sum(inlinks) over (partition by key) as bigint) as all_inlinks,
    row_number() over (
      partition by key
      order by coalesce(fetched_time, timestamp '1970-01-01 00:00:00') desc, is_moved, old_key) as place
  from ruled
) as placed
where place = 1
order by key
