-- Segments whose captures have newer ones now, with other links.
-- In: events, old.
select distinct old.capture_segment as name
from events
join old on old.key = events.key
where events.is_newest and old.capture_segment is not null
order by name
