-- The requisites that captures in new segments name, a row for each place where one is named.
-- In: links, needing (needing.sql).
select links.target as key, links.target_url as url, needing.moment, needing.before, needing.steps + 1 as steps
from links
join needing on needing.key = links.source and needing.segment = links.segment
where links.rule = 'requisite' and links.target <> links.source
