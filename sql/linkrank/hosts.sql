-- The hosts that pages and the targets of their links have.
-- In: links (key, url, target, target_url).
select distinct host
from (
  select regexp_replace(split_part(url, '/', 3), ':[0-9]+$', '') as host
  from links
  union all
  select regexp_replace(split_part(target_url, '/', 3), ':[0-9]+$', '') as host
  from links
) as ends
