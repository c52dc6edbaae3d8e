-- The rows of URLs after one event each. The steps are event_pairs, event_states, event_intervals.
-- A segment stays where its content is not known any more: its links count until there are others.
-- In: event_intervals.
-- `redirects` of new rows is null unless they are seeds: links may say how many.
select
  key, url, host, domain, case when is_requisite then 'requisite' else status end as status,
  case
    when visit = 'kept' then coalesce(fetch_time, due)
    when visit = 'retry' then due
    when visit = 'at once' then coalesce(case when kind = 'seed' then due end, moment)
    when is_requisite then timestamp '9999-12-31 00:00:00'
    else moment + least(new_interval_s, always_s) * interval '1' second
  end as fetch_time,
  case when content = 'new' then moment when content = 'none' then null else modified_time end as modified_time,
  case when visit = 'retry' then retries + cost when visit = 'kept' then retries else 0 end as retries,
  new_interval_s as interval_s,
  case when is_seeded then coalesce(seed_score, score) else score end as score,
  case when content = 'new' then new_signature when content <> 'none' then signature end as signature,
  case when kind = 'seed' then fetched_time else moment end as fetched_time,
  case
    when content in ('new', 'same') then new_etag
    when content = 'none' then null
    when visit = 'later' then coalesce(new_etag, etag)
    else etag
  end as etag,
  case
    when content in ('new', 'same') then new_last_modified
    when content = 'none' then null
    when visit = 'later' then coalesce(new_last_modified, last_modified)
    else last_modified
  end as last_modified,
  case when kind = 'seed' or visit = 'retry' then redirect_url else new_redirect_url end as redirect_url,
  case when kind = 'seed' then 0 else redirects end as redirects,
  case when is_captured then segment_name else capture_segment end as capture_segment,
  case when is_captured then warc_file when content <> 'none' then capture_file end as capture_file,
  case when is_captured then warc_offset when content <> 'none' then capture_offset end as capture_offset,
  case when is_captured then moment when content <> 'none' then capture_time end as capture_time,
  case when is_captured then payload_digest when content <> 'none' then capture_digest end as capture_digest,
  depth,
  case
    when is_seeded then new_metadata
    when kind = 'seed' and old_depth > 0 then null
    else metadata
  end as metadata,
  fetch_status, inlinks, place, places, began
from event_intervals
