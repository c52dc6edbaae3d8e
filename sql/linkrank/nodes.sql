-- The ends of links that stay, in order of keys.
-- In: kept (source, target), links (key, url, target, target_url).
select key, min(url) as url
from (
  select key, url
  from links
  where key in (select source from kept)
  union all
  select target as key, target_url as url
  from links
  where target in (select target from kept)
) as ends
group by key
order by key
