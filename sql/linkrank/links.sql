-- The links of pages that are there.
-- In: outlinks.
select key, url, target, target_url
from outlinks
where target is not null and not is_gone
