-- The last event of each URL.
-- In: events.
select *
from events
where place = places
