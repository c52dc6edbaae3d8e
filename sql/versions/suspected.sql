-- How many captures are to be compared with links.
-- In: suspects (suspects.sql).
select count(*) as suspected
from suspects
