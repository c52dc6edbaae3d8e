-- The rows of the new version, in order of keys: as visits and seeds left them, with what links say, and the rule of
-- orphans. Host and domain of new rows are null: the writer knows them.
-- In: met (met.sql), hinted (key, every_s, is_newer), lost (key, inlinks), matrix, schedule, facts, there (name: segments
-- that are there), taken_out (key, name: dropped pages), scores (key, score: of plug-ins),
-- ended (key, score: of several rounds, or of seeds that come with one).
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
from (
  select
    linked.*,
    case
      when linked.status in ('unfetched', 'fetched', 'not_modified') and linked.inlinks = 0 and linked.depth > 0
        then schedule.orphans
    end as becomes,
    cast(least(schedule.gone_s, round(linked.interval_s * cast(1.5 as double))) as bigint) as longer_s
  from (
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
    from (
      select
        met.key, met.url, met.host, met.domain, met.is_page, met.stored,
        case when met.is_found then 'link' else 'nothing' end as seen,
        met.fetch_time, met.linked_at, met.modified_time, coalesce(met.retries, 0) as retries, met.interval_s,
        case
          when scores.key is not null then scores.score
          when ended.key is not null then ended.score
          when met.is_new then coalesce(met.linked_score, cast(0 as decimal(18, 9)))
          when met.depth = 0 or not met.is_found or schedule.ranked then met.score
          else greatest(met.score, met.linked_score)
        end as score,
        met.signature, met.fetched_time, met.etag, met.last_modified, met.redirect_url,
        case
          when met.is_new then coalesce(met.linked_redirects, 0)
          when met.redirects is null
            then case when met.linked_at <= met.began then met.linked_redirects else 0 end
          else least(met.redirects, coalesce(met.linked_redirects, met.redirects))
        end as redirects,
        met.capture_segment, met.capture_file, met.capture_offset, met.capture_time, met.capture_digest,
        case
          when not met.is_page then least(coalesce(met.depth, met.steps), coalesce(met.steps, met.depth))
          when met.is_new then met.linked_depth
          else least(met.depth, coalesce(met.linked_depth, met.depth))
        end as depth,
        case
          when met.depth = 0 or not met.is_found or not met.is_page then met.metadata
          when not met.is_new and met.metadata is null and coalesce(met.linked_at > met.began, true) then null
          when greatest(met.linked_max_depth, coalesce(facts.max_depth, 0)) < 2147483647
            then '{"max_depth": "' || cast(greatest(met.linked_max_depth, coalesce(facts.max_depth, 0)) as string) || '"}'
        end as metadata,
        coalesce(met.fetch_status, 'unfetched') as fetch_status,
        coalesce(met.inlinks, 0) + coalesce(met.new_inlinks, 0)
          + case when met.began < coalesce(met.linked_at, met.began + interval '1' second) then 1 else 0 end
          as inlinks
      from met
      left join facts on facts.metadata = met.metadata
      left join scores on scores.key = met.key
      left join ended on ended.key = met.key
      cross join schedule
    ) as joined
    cross join schedule
    left join matrix on matrix.stored = joined.stored and matrix.seen = joined.seen
    left join hinted on hinted.key = joined.key
    left join lost on lost.key = joined.key
    left join there on there.name = joined.capture_segment
    left join taken_out on taken_out.key = joined.key and taken_out.name = joined.capture_segment
  ) as linked
  cross join schedule
) as ruled
where becomes is null or becomes <> 'drop'
order by key
