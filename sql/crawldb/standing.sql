-- The score that each page has when a round finds its links.
-- In: events (of the round), seeded (seeded.sql).
select events.key, events.segment, max(seeded.score) as score
from events
join seeded on seeded.key = events.key
where events.kind = 'capture' and seeded.score is not null
group by events.key, events.segment
