-- What each link in new segments says of its target.
-- In: followed (followed.sql).
select
  key, url, moment, depth, redirects, max_depth,
  case when priority is null then score else cast(score * priority as decimal(18, 9)) end as score, counts, given
from followed
