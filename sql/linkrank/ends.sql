-- All pages that were seen, and what else is linked to, with their hosts, in order of keys.
-- In: outlinks, links (key, url, target, target_url).
select key, url, regexp_replace(split_part(url, '/', 3), ':[0-9]+$', '') as host
from (
  select key, min(url) as url
  from (
    select key, url
    from outlinks
    where seen_time is not null
    union all
    select target as key, target_url as url
    from links
    where not exists (select 1 from outlinks where outlinks.key = links.target and outlinks.seen_time is not null)
  ) as all_rows
  group by key
) as ends
order by key
