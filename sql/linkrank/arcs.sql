-- The links that may count, by option none within a host or a domain.
-- In: sources (target, source, host, domain, node_group), nodes (key, id, host, domain, node_group), options
-- (within_host, within_domain).
select
  sources.source, nodes.id as target, sources.domain as source_domain, nodes.domain as target_domain,
  sources.node_group as source_group, nodes.node_group as target_group
from sources
join nodes on nodes.key = sources.target
cross join options
where (options.within_host or sources.host <> nodes.host)
  and (options.within_domain or sources.domain <> nodes.domain)
