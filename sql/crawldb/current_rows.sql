-- Rows with the status that the matrix gives them after links, the due time with hints, and the inlinks that are left.
-- In: linked_rows, matrix, schedule, hinted (key, every_s, is_newer), lost (key, inlinks),
-- there (name: segments that are there), taken_out (key, name: dropped pages).
select
  joined.key, joined.url, joined.host, joined.domain,
  case
    when not joined.is_page then 'requisite'
    when matrix.believed = 'kept' then joined.stored
    when matrix.believed = 'restored' then joined.fetch_status
    else matrix.believed
  end as status,
  case
    when joined.is_page and joined.retries = 0 and (hinted.is_newer = 1 or hinted.every_s is not null) then least(
      joined.fetch_time,
      joined.fetched_time + greatest(
        schedule.hint_s, case when hinted.is_newer = 1 then 0 else hinted.every_s end) * interval '1' second)
    else coalesce(joined.fetch_time, joined.linked_at)
  end as fetch_time, joined.modified_time, joined.retries,
  coalesce(joined.interval_s, schedule.interval_s) as interval_s, joined.score, joined.signature,
  joined.fetched_time, joined.etag, joined.last_modified, joined.redirect_url, joined.redirects,
  joined.capture_segment, joined.capture_file, joined.capture_offset, joined.capture_time, joined.capture_digest,
  joined.depth, joined.metadata, joined.fetch_status,
  joined.capture_segment is null or (there.name is not null and taken_out.key is null) as is_there,
  case
    when joined.inlinks < coalesce(lost.inlinks, 0) then 0 else joined.inlinks - coalesce(lost.inlinks, 0)
  end as inlinks
from linked_rows as joined
cross join schedule
left join matrix on matrix.stored = joined.stored and matrix.seen = joined.seen
left join hinted on hinted.key = joined.key
left join lost on lost.key = joined.key
left join there on there.name = joined.capture_segment
left join taken_out on taken_out.key = joined.key and taken_out.name = joined.capture_segment
