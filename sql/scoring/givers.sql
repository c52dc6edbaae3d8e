-- The pages whose links are in new segments, as plug-ins see them. A redirect is a page with one link.
-- In: links, sources_given (sources.sql), hops_given, changes, base.
select
  sources.key, sources.segment, sources.moment, base.url, sources.depth,
  nullif(sources.max_depth, 2147483647) as max_depth, base.score, linking.outlinks,
  coalesce(changes.is_changed, false) as is_changed
from sources_given as sources
join (
  select source, segment, count(*) as outlinks
  from (
    select source, segment
    from links
    where followed and target <> source and coalesce(element, '') <> 'robots'
    union all
    select source, segment
    from hops_given
  ) as leads
  group by source, segment
) as linking on linking.source = sources.key and linking.segment = sources.segment
join base on base.key = sources.key
left join changes on changes.key = sources.key and changes.segment = sources.segment
