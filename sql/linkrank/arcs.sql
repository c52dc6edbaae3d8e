-- The links that may count, by option none within a host or a domain.
-- In: links (key, target), nodes (key, id, host, domain, node_group), options (within_host, within_domain).
select
  source.id as source, target.id as target, source.domain as source_domain, target.domain as target_domain,
  source.node_group as source_group, target.node_group as target_group
from links
join nodes as source on source.key = links.key
join nodes as target on target.key = links.target
cross join options
where (options.within_host or source.host <> target.host)
  and (options.within_domain or source.domain <> target.domain)
