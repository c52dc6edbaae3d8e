-- How many links each page has that has some.
-- In: kept (source, target), nodes (key, id).
select nodes.id, cast(count(*) as int) as degree
from kept
join nodes on nodes.key = kept.source
group by nodes.id
order by nodes.id
