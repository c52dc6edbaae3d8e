-- Pages with the very same words: how many, and the first two by key.
-- In: vectors.
select
  same, count(*) as pages, min(case when place = 1 then key end) as leader,
  min(case when place = 2 then key end) as second
from (
  select same, key, row_number() over (partition by same order by key) as place
  from vectors
) as placed
group by same
