-- Links on captures that have newer ones now.
-- In: older_links (`links` of older segments), replaced (replaced.sql).
select links.target as key
from older_links as links
join replaced on replaced.key = links.source and replaced.segment = links.segment
where links.followed and links.target <> links.source
