-- The ten hosts with most rows.
-- In: crawldb.
select host, count(*) as urls
from crawldb
group by host
order by urls desc, host
limit 10
