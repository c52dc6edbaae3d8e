-- The keys of requisites that are no pages: no followed link names them.
-- In: all_visits (rows of `pages`), named (rows of `links`).
select distinct key
from all_visits
where hop = 'E' and key not in (select target from named where followed and target is not null)
