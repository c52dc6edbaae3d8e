-- The pages that the CrawlDb calls duplicates.
-- In: crawldb.
select key
from crawldb
where status = 'duplicate'
