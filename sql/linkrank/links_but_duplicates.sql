-- The links of pages that are there, without those of duplicates and to them.
-- In: outlinks, crawldb.
select key, url, target, target_url
from outlinks
where target is not null and not is_gone
  and not exists (select 1 from crawldb where crawldb.key = outlinks.key and crawldb.status = 'duplicate')
  and not exists (select 1 from crawldb where crawldb.key = outlinks.target and crawldb.status = 'duplicate')
