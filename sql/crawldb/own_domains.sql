-- Hosts that are their own domain and have three labels or more: some of them are under no listed suffix.
-- In: crawldb.
select distinct host
from crawldb
where host = domain and host like '%.%.%'
