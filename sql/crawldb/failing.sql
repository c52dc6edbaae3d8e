-- Hosts of whose URLs that were visited more than half failed at the last visit, in a way that passes.
-- In: crawldb.
select host
from crawldb
group by host
having 2 * count(case when retries > 0 then 1 end) > count(fetched_time)
