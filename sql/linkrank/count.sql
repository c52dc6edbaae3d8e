-- How many ends of links there are.
-- In: ends.
select count(*) as ends
from ends
