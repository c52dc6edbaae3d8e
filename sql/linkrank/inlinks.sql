-- By target, one link from each group of pages: that from the smallest key.
-- In: kept (source, target, source_group), nodes (key, id).
select target_node.id as target, source_node.id as source
from (
  select target, min(source) as source
  from kept
  group by target, source_group
) as one
join nodes as target_node on target_node.key = one.target
join nodes as source_node on source_node.key = one.source
order by target_node.id, source_node.id
