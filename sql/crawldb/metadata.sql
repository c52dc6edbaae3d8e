-- What seeds, or the seeds they come from, say of URLs that were fetched.
-- In: events, old, older_pages (`pages` of segments whose captures have newer ones now).
select distinct metadata
from (
  select metadata
  from events
  union all
  select metadata
  from old
  union all
  select metadata
  from older_pages
) as given
where metadata is not null
order by metadata
