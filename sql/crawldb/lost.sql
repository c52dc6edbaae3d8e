-- How many links to a URL are on captures that have newer ones now.
-- Those of pages whose links plug-ins leave out were not counted.
-- In: dropping (key), older_links (`links` of older segments), older_segments (segment, name), events, old,
-- facts.
select links.target as key, count(*) as inlinks
from older_links as links
join older_segments on older_segments.segment = links.segment
join (
  select old.key, old.capture_segment
  from events
  join old on old.key = events.key
  left join facts on facts.metadata = old.metadata
  where events.is_newest and old.depth < coalesce(facts.max_depth, 2147483647)
    and not exists (select 1 from dropping where dropping.key = old.key)
) as page on page.key = links.source and page.capture_segment = older_segments.name
where links.followed and links.target <> links.source
group by links.target
