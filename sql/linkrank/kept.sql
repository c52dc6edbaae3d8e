-- Of the links of a page to a group, the one to the smallest key. Arcs between domains on a loop are left out.
-- In: arcs, loops (source_domain, target_domain).
select source, min(target) as target, min(source_group) as source_group
from arcs
where not exists (
  select 1
  from loops
  where loops.source_domain = arcs.source_domain and loops.target_domain = arcs.target_domain
)
group by source, target_group
