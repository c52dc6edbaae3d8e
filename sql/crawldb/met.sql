-- Rows as visits and seeds left them, next to what links and needs in new segments say of the same URLs.
-- `is_page`: false for a requisite that no followed link names; `is_new`: a row or a page that the table did not have.
-- A requisite that becomes a page is due when it would be, had it been a page at its last visit.
-- In: base, found (found.sql), needed (needed.sql), schedule.
select
  coalesce(base.key, found.key, needed.key) as key, coalesce(base.url, found.url, needed.url) as url, base.host, base.domain,
  case when base.status = 'requisite' then base.fetch_status else coalesce(base.status, 'none') end as stored,
  coalesce(base.status, 'requisite') <> 'requisite' or found.linked_at is not null as is_page,
  coalesce(base.status, 'requisite') = 'requisite' as is_new,
  case
    when base.status <> 'requisite' then base.fetch_time
    when found.linked_at is null
      then least(coalesce(base.fetch_time, needed.asked_at), coalesce(needed.asked_at, base.fetch_time))
    when base.retries > 0 then base.fetch_time
    else base.fetched_time + least(base.interval_s, schedule.always_s) * interval '1' second
  end as fetch_time,
  base.modified_time, base.retries, base.interval_s, base.score, base.signature, base.fetched_time, base.etag,
  base.last_modified, base.redirect_url, base.redirects, base.capture_segment, base.capture_file, base.capture_offset,
  base.capture_time, base.capture_digest, base.depth, needed.steps, base.metadata, base.fetch_status, base.inlinks, base.began,
  found.key is not null as is_found, found.linked_at, found.depth as linked_depth, found.redirects as linked_redirects,
  found.max_depth as linked_max_depth, found.score as linked_score, found.inlinks as new_inlinks
from base
full outer join found on found.key = base.key
full outer join needed on needed.key = coalesce(base.key, found.key)
cross join schedule
where base.key is not null or found.linked_at is not null or needed.key is not null
