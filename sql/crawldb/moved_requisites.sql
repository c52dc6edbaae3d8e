-- Redirects of requisites, in order of time.
-- In: events, needing (needing.sql).
select events.key, events.url, events.redirect_url, events.moment, needing.before, needing.steps
from events
join needing on needing.key = events.key and needing.segment = events.segment
where events.is_requisite and events.redirect_url is not null
order by events.moment, events.key, events.redirect_url
