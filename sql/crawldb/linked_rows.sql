-- Rows with what links say of their URLs: score, depth, redirects, metadata, and the number of inlinks.
-- In: met (met.sql), schedule, facts, scores (key, score: of plug-ins),
-- ended (key, score: of several rounds, or of seeds that come with one).
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
