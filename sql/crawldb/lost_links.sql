-- Links on captures that have newer ones now.
-- In: older_links (`links` of older segments), older_segments (segment, name), replaced (replaced.sql).
select links.target as key
from older_links as links
join older_segments on older_segments.segment = links.segment
join replaced on replaced.key = links.source and replaced.capture_segment = older_segments.name
where links.followed and links.target <> links.source
