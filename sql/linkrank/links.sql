-- The links of pages that are there, without those of duplicates and to them.
-- In: outlinks, duplicates (key).
select key, url, target, target_url
from outlinks
where target is not null and not is_gone
  and not exists (select 1 from duplicates where duplicates.key = outlinks.key)
  and not exists (select 1 from duplicates where duplicates.key = outlinks.target)
