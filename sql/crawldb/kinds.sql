-- Hosts, types and metadata of what was fetched: by these, rules of the schedule are chosen.
-- In: events.
select distinct host, coalesce(mime, '') as mime, coalesce(metadata, '') as metadata
from events
where kind = 'capture'
order by host, mime, metadata
