-- Redirects with the score that the page which leads on had then; nothing, where scores are a rank.
-- In: hops_found, standing (key, segment, score), schedule (ranked).
select
  hops.key, hops.url, hops.moment, hops.depth, hops.redirects, hops.max_depth,
  case when schedule.ranked then cast(0 as decimal(18, 9)) else coalesce(standing.score, hops.score) end as score,
  hops.counts, hops.source, hops.segment, hops.given
from hops_found as hops
cross join schedule
left join standing on standing.key = hops.source and standing.segment = hops.segment
