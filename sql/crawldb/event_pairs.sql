-- Events next to the rows of their URLs: the facts of both under one name, and `stored` and `seen`, which choose a row
-- of the matrix. A URL without a row begins as new.
-- In: turn (events, one a URL), before (rows of the table), schedule (one row).
-- A requisite that was fetched as a requisite waits until a page asks for the URL. A seed, or a visit of a page, makes
-- the URL a page. For the seed the page is due when a page would be that was visited then.
select
  turn.key, turn.url, turn.moment, turn.kind, turn.cost, turn.due, turn.mime, turn.is_full, turn.segment_name,
  turn.warc_file, turn.warc_offset, turn.payload_digest, turn.place, turn.places,
  coalesce(before.began, case when before.key is null then turn.began end) as began,
  turn.redirect_url as new_redirect_url, turn.etag as new_etag, turn.last_modified as new_last_modified,
  turn.signature as new_signature, turn.metadata as new_metadata, turn.score as seed_score,
  turn.interval_s as seed_interval_s,
  coalesce(before.host, turn.host) as host, before.domain,
  case
    when before.status <> 'requisite' or before.retries > 0 then before.fetch_time
    else before.fetched_time + least(before.interval_s, schedule.always_s) * interval '1' second
  end as fetch_time, before.modified_time, coalesce(before.status, 'requisite') = 'requisite' as is_new,
  turn.is_requisite and coalesce(before.status, 'requisite') = 'requisite' as is_requisite,
  coalesce(before.retries, 0) as retries,
  case
    when before.key is null or turn.seen = 'seed_overwrite' then schedule.interval_s else before.interval_s
  end as interval_s,
  case
    when turn.seen = 'seed_overwrite' or (coalesce(before.status, 'requisite') = 'requisite' and turn.kind = 'seed')
      then cast(1 as decimal(18, 9))
    else coalesce(before.score, cast(0 as decimal(18, 9)))
  end as score,
  before.signature, before.fetched_time, before.etag,
  before.last_modified, before.redirect_url, before.redirects, before.capture_segment,
  before.capture_file, before.capture_offset, before.capture_time, before.capture_digest,
  case
    when before.status = 'requisite' and not turn.is_requisite then turn.depth
    when before.status <> 'requisite' and turn.is_requisite then before.depth
    else least(coalesce(before.depth, turn.depth), turn.depth)
  end as depth, before.depth as old_depth, before.metadata, coalesce(before.inlinks, 0) as inlinks,
  coalesce(case when before.status = 'requisite' then before.fetch_status else before.status end, 'none') as stored,
  coalesce(before.fetch_status, 'unfetched') as stored_fetch,
  case
    when turn.seen = 'content' and before.signature is null then 'first'
    when turn.seen = 'content' and before.signature = turn.signature then 'same'
    when turn.seen = 'content' then 'changed'
    when turn.seen = 'not_modified' and (before.signature is null or before.capture_segment is null) then 'lost'
    else turn.seen
  end as seen
from turn
left join before on before.key = turn.key
cross join schedule
