-- How many events a URL has at most.
-- In: events.
select coalesce(max(places), 0) as waves
from events
