-- The links with the numbers of where they begin.
-- In: links (key, target), nodes (key, id, host, domain, node_group).
select links.target, nodes.id as source, nodes.host, nodes.domain, nodes.node_group
from links
join nodes on nodes.key = links.key
