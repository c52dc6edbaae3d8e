-- URLs whose newest answer leads elsewhere, as the CrawlDb says it.
-- In: crawldb (rows of the newest version).
select key, redirect_url
from crawldb
where status in ('redirected_temporary', 'redirected_permanent') and redirect_url is not null
order by key
