-- The URLs that were visited, or that links lead to, as plug-ins see them. `is_new`: no version and no seed had it.
-- `segment`, `moment`: of the newest capture with content.
-- In: events, base, found, changes.
select
  coalesce(base.key, found.key) as key, coalesce(base.url, found.url) as url,
  coalesce(base.status, 'unfetched') as status,
  least(coalesce(base.depth, found.depth), coalesce(found.depth, base.depth)) as depth,
  base.key is null or (base.began is not null and base.score = 0 and found.key is not null) as is_new,
  coalesce(case when base.began is not null and base.score = 0 then found.score end, base.score, found.score) as score,
  coalesce(found.given, cast(0 as decimal(18, 9))) as given,
  visits.key is not null as is_visited, coalesce(changes.is_changed, false) as is_changed, visits.segment, visits.moment
from base
full outer join found on found.key = base.key
left join (
  select key, max(case when is_newest then segment end) as segment, max(case when is_newest then moment end) as moment
  from events
  where kind = 'capture'
  group by key
) as visits on visits.key = base.key
left join changes on changes.key = visits.key and changes.segment = visits.segment
where visits.key is not null or (found.key is not null and (base.key is not null or found.linked_at is not null))
