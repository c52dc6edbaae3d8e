-- How many rows are of requisites.
-- In: all_visits (rows of `pages`).
select count(*) as requisites
from all_visits
where hop = 'E'
