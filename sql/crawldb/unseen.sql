-- The lists of which some URL was not visited yet, as far as the table knows.
-- In: crawldb, listed (key, fetched_time as it was when the list was made, list).
select distinct listed.list
from listed
join crawldb on crawldb.key = listed.key
where crawldb.fetched_time is not distinct from listed.fetched_time
