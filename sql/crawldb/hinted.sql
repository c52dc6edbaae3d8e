-- What sitemaps say of pages since their last visit: `is_newer`, 1 if one has changed since; `every_s`, how often it does.
-- What a sitemap says of the time after it was fetched counts as that time.
-- In: hints (hints.sql), before, turn, after.
select
  said.key, min(case when said.moment > visited.fetched_time then said.every_s end) as every_s,
  max(case when said.changed is not null and least(said.changed, said.moment) > visited.fetched_time then 1 else 0 end) as is_newer
from hints as said
join (
  select key, fetched_time
  from before
  where not exists (select 1 from turn where turn.key = before.key)
  union all
  select key, fetched_time
  from after
) as visited on visited.key = said.key
group by said.key
