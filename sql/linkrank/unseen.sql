-- What is linked to and was not seen: a row a link.
-- In: outlinks, links (key, url, target, target_url).
select target as key, target_url as url
from links
where not exists (select 1 from outlinks where outlinks.key = links.target and outlinks.seen_time is not null)
