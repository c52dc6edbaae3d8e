-- How many pages have words.
-- In: vectors.
select count(*) as pages
from vectors
