-- The rows of `pages` that count: all but those of pages that were dropped from their segment.
-- In: pages (rows of `pages` with segment, the place of their segment in `inputs`), dropped (key, segment).
select *
from pages
where not exists (select 1 from dropped where dropped.key = pages.key and dropped.segment = pages.segment)
