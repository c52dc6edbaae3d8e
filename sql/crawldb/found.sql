-- What links and redirects in new segments say of their targets. `linked_at`: null where none may add a row.
-- `given`: what plug-ins have them hand on, in all.
-- In: said (said.sql), hops (key, url, moment, depth, redirects, max_depth, score, counts, given; null: it leads
-- nowhere), named (key, url, moment: what a robots.txt names as a sitemap).
select
  key, min(url) as url, min(moment) as linked_at, min(depth) as depth, min(redirects) as redirects,
  max(max_depth) as max_depth, max(score) as score, cast(sum(counts) as bigint) as inlinks,
  cast(sum(given) as decimal(18, 9)) as given
from (
  select key, url, moment, depth, redirects, max_depth, score, counts, given
  from said
  union all
  select key, url, moment, depth, redirects, max_depth, score, counts, given
  from hops
  where given is not null
  union all
  select key, url, moment, 1, 0, 2147483647, cast(0 as decimal(18, 9)), 1, cast(0 as decimal(18, 9))
  from named
) as link
group by key
