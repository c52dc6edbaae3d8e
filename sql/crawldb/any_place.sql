-- The same, where a list has no limit.
-- In: candidates, of_nodes (by_node.sql).
select key, due, reason
from candidates
where reason is not null
union all
select key, due, coalesce(reason, 'listed')
from of_nodes
