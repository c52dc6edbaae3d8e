-- The rows of the new version, in order of keys. The steps are linked_rows, current_rows, ruled_rows.
-- Host and domain of new rows are null: the writer knows them.
-- In: ruled_rows.
select
  key, url, host, domain, case when becomes is null then status else becomes end as status, fetch_time, modified_time,
  retries, case when becomes = 'gone' and fetch_status <> 'gone' then longer_s else interval_s end as interval_s,
  score, signature, fetched_time,
  case when is_there then etag end as etag, case when is_there then last_modified end as last_modified,
  redirect_url, redirects, case when is_there then capture_segment end as capture_segment,
  case when is_there then capture_file end as capture_file,
  case when is_there then capture_offset end as capture_offset,
  case when is_there then capture_time end as capture_time,
  case when is_there then capture_digest end as capture_digest,
  depth, metadata, case when becomes = 'gone' then 'gone' else fetch_status end as fetch_status, inlinks
from ruled_rows
where becomes is null or becomes <> 'drop'
order by key
