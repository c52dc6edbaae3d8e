-- The rows of URLs after one event each, by the matrix. Of content that is known no more the segment stays: its links
-- count until there are others.
-- In: turn (events, one a URL), before (rows of the table), matrix (stored, seen, believed, visit, content),
-- schedule (one row), kinds (host, mime, metadata, sort), limits (sort, status, fixed_s, least_s, most_s).
-- `redirects` of new rows is null unless they are seeds: links may say how many.
-- A requisite that was fetched as one waits until a page asks for it. A seed, or a visit of a page, makes it a page; for
-- the seed it is due when a page would be that was visited then.
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
from (
  select
    believed.*,
    case
      when is_seeded then coalesce(seed_interval_s, interval_s)
      when visit in ('kept', 'retry', 'at once') then interval_s
      when limits.fixed_s is not null then limits.fixed_s
      else least(
        greatest(scheduled_s, coalesce(limits.least_s, case when visit in ('sooner', 'later') then min_s else 0 end)),
        coalesce(limits.most_s, case when visit in ('sooner', 'later') then max_s else 1099511627776 end))
    end as new_interval_s
  from (
    select
      judged.*, matrix.visit, matrix.content, schedule.always_s, schedule.min_s, schedule.max_s,
      case
        when matrix.believed = 'kept' then judged.stored
        when matrix.believed = 'restored' then judged.stored_fetch
        else matrix.believed
      end as status,
      case
        when matrix.believed in ('kept', 'restored') then judged.stored_fetch
        when matrix.believed = 'duplicate' then 'not_modified'
        else matrix.believed
      end as fetch_status,
      judged.kind = 'seed' and (judged.is_new or judged.seen <> 'seed_keep') as is_seeded,
      judged.is_full and matrix.content in ('new', 'same') as is_captured,
      cast(case
        when matrix.visit = 'sooner' then round(judged.interval_s * (1 - schedule.faster))
        when matrix.visit = 'later' then round(judged.interval_s * (1 + schedule.slower))
        when matrix.visit = 'longer' then least(schedule.gone_s, round(judged.interval_s * cast(1.5 as double)))
        else judged.interval_s
      end as bigint) as scheduled_s
    from (
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
    ) as judged
    cross join schedule
    left join matrix on matrix.stored = judged.stored and matrix.seen = judged.seen
  ) as believed
  left join kinds
    on kinds.host = believed.host and kinds.mime = coalesce(believed.mime, '')
    and kinds.metadata = coalesce(believed.new_metadata, '')
  left join limits on limits.sort = kinds.sort and limits.status = believed.status
) as scheduled
