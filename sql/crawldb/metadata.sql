-- What seeds, or the seeds they come from, say of URLs that were fetched.
-- In: events, old.
select distinct metadata
from (
  select metadata
  from events
  union all
  select metadata
  from old
) as given
where metadata is not null
order by metadata
