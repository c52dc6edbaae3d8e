-- The URLs that are due, for what no query can judge: `urls.rules`, filters, normalisers.
-- In: crawldb (rows of the newest version), settings (one row).
select crawldb.key, crawldb.url, crawldb.host
from crawldb
cross join settings
where crawldb.fetch_time <= settings.now
