-- The rows of `pages` that count: all but those of pages that were dropped from their segment, or are duplicates.
-- In: pages (rows of `pages` with segment, the place of their segment in `inputs`), dropped (key, segment), crawldb
-- (key, status).
select *
from pages
where not exists (select 1 from dropped where dropped.key = pages.key and dropped.segment = pages.segment)
  and not exists (select 1 from crawldb where crawldb.key = pages.key and crawldb.status = 'duplicate')
