-- All pages that were seen, and what else is linked to (`is_unseen`), with their hosts, in order of keys.
-- In: outlinks (a row with `seen_time` a page), unseen (key, url).
select key, url, regexp_replace(split_part(url, '/', 3), ':[0-9]+$', '') as host, is_unseen
from (
  select key, url, 0 as is_unseen
  from outlinks
  where seen_time is not null
  union all
  select key, min(url) as url, 1 as is_unseen
  from unseen
  group by key
) as ends
order by key
