-- The links that count by the numbers of their ends; some are there more than once.
-- In: links (key, target), ends (key, id).
select sources.id as source, targets.id as target
from links
join ends as sources on sources.key = links.key
join ends as targets on targets.key = links.target
where sources.id <> targets.id
