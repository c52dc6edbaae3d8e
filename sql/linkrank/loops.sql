-- The arcs between domains that link to each other, or that are on a cycle of three, by option; in order.
-- In: domain_arcs (source_domain, target_domain), options (drop_reciprocal, drop_triangles).
select ab.source_domain, ab.target_domain
from domain_arcs as ab
join domain_arcs as ba
  on ba.source_domain = ab.target_domain and ba.target_domain = ab.source_domain
cross join options
where options.drop_reciprocal
union
select ab.source_domain, ab.target_domain
from domain_arcs as ab
join domain_arcs as bc on bc.source_domain = ab.target_domain
join domain_arcs as ca
  on ca.source_domain = bc.target_domain and ca.target_domain = ab.source_domain
cross join options
where options.drop_triangles
order by source_domain, target_domain
