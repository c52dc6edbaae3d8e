-- The rows of the new version, in order of keys: as visits and seeds left them, with what links say, and the rule of
-- orphans. Host and domain of new rows are null: the writer knows them.
-- In: base, hinted (key, every_s, is_newer), found, lost (key, inlinks), matrix, schedule, facts, there (name: segments
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
        when matrix.believed = 'kept' then joined.stored
        when matrix.believed = 'restored' then joined.fetch_status
        else matrix.believed
      end as status,
      case
        when joined.retries = 0 and (hinted.is_newer = 1 or hinted.every_s is not null) then least(
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
        coalesce(base.key, found.key) as key, coalesce(base.url, found.url) as url, base.host, base.domain,
        coalesce(base.status, 'none') as stored, case when found.key is null then 'nothing' else 'link' end as seen,
        base.fetch_time, found.linked_at, base.modified_time, coalesce(base.retries, 0) as retries, base.interval_s,
        case
          when scores.key is not null then scores.score
          when ended.key is not null then ended.score
          when base.key is null then found.score
          when base.depth = 0 or found.key is null or schedule.ranked then base.score
          else greatest(base.score, found.score)
        end as score,
        base.signature, base.fetched_time, base.etag, base.last_modified, base.redirect_url,
        case
          when base.key is null then found.redirects
          when base.redirects is null then case when found.linked_at <= base.began then found.redirects else 0 end
          else least(base.redirects, coalesce(found.redirects, base.redirects))
        end as redirects,
        base.capture_segment, base.capture_file, base.capture_offset, base.capture_time, base.capture_digest,
        least(coalesce(base.depth, found.depth), coalesce(found.depth, base.depth)) as depth,
        case
          when base.depth = 0 or found.key is null then base.metadata
          when base.key is not null and base.metadata is null and coalesce(found.linked_at > base.began, true) then null
          when greatest(found.max_depth, coalesce(facts.max_depth, 0)) < 2147483647
            then '{"max_depth": "' || cast(greatest(found.max_depth, coalesce(facts.max_depth, 0)) as string) || '"}'
        end as metadata,
        coalesce(base.fetch_status, 'unfetched') as fetch_status,
        coalesce(base.inlinks, 0) + coalesce(found.inlinks, 0)
          + case when base.began < coalesce(found.linked_at, base.began + interval '1' second) then 1 else 0 end
          as inlinks
      from base
      full outer join found on found.key = base.key
      left join facts on facts.metadata = base.metadata
      left join scores on scores.key = coalesce(base.key, found.key)
      left join ended on ended.key = coalesce(base.key, found.key)
      cross join schedule
      where base.key is not null or found.linked_at is not null
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
