-- Captures that have newer ones now, with other links, and whose own links were counted: as `sources` told then, by the
-- depth and the metadata that the capture had. Of pages whose links plug-ins leave out none were counted.
-- In: dropping (key), events, old, facts, older_pages (`pages` of older segments), older_segments (segment, name).
select captured.key, captured.segment
from (
  select older_pages.key, older_pages.segment
  from older_pages
  left join facts on facts.metadata = older_pages.metadata
  group by older_pages.key, older_pages.segment
  having min(older_pages.depth) < max(coalesce(facts.max_depth, 2147483647))
) as captured
join older_segments on older_segments.segment = captured.segment
join old on old.key = captured.key and old.capture_segment = older_segments.name
join events on events.key = captured.key
where events.is_newest
  and not exists (select 1 from dropping where dropping.key = captured.key)
