-- The next event of each URL that has more of them after it.
-- In: events, wave (place).
select events.*
from events
join wave on wave.place = events.place
where events.place < events.places
