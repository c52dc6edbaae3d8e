-- Links by their targets.
-- In: thinned (key, url, target, target_url, anchor).
select target as key, target_url as url, key as source, url as source_url, anchor
from thinned
order by target, source, anchor
