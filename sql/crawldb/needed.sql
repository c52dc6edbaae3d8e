-- The requisites that new segments name. `asked_at`: since when one is due, null if its last visit is recent enough;
-- `steps`: from the nearest page.
-- In: needs (needs_of_links.sql, and the same of redirects), events, old.
select
  needs.key, min(needs.url) as url, min(needs.steps) as steps,
  min(case when visited.moment is null or visited.moment < needs.before then needs.moment end) as asked_at
from needs
left join (
  select key, max(moment) as moment
  from (
    select key, moment
    from events
    where kind = 'capture'
    union all
    select key, fetched_time
    from old
    where fetched_time is not null
  ) as visits
  where key in (select key from needs)
  group by key
) as visited on visited.key = needs.key
group by needs.key
