-- When new captures linked, or led, to seeds first: a seed that was known before is no new URL.
-- In: links, captures, seeds, named (key, url, moment).
select key, min(moment) as linked_at
from (
  select links.target as key, captures.moment
  from links
  join captures on captures.key = links.source and captures.segment = links.segment
  where links.followed and links.target in (select key from seeds)
  union all
  select seeds.key, captures.moment
  from captures
  join seeds on seeds.url = captures.redirect_url
  where not captures.is_requisite
  union all
  select key, moment
  from named
  where key in (select key from seeds)
) as known
group by key
