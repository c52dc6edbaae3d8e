-- The rows of pages. A requisite is a page where a followed link names it.
-- In: all_visits (rows of `pages`), named (rows of `links`).
select *
from all_visits
where coalesce(hop, '') <> 'E'
  or key in (select target from named where followed and target is not null)
