-- Links in the order of the table they come from, after normalisers have changed some URLs.
-- In: ruled (key, url, target, target_url, anchor).
select *
from ruled
order by key, target, anchor
