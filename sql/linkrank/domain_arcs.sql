-- The graph of domains.
-- In: arcs.
select distinct source_domain, target_domain
from arcs
where source_domain <> target_domain
