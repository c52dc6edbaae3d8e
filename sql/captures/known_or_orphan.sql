-- The captures of pages that the CrawlDb has the content of, orphans too; segment by segment.
-- In: crawldb (rows of the newest version), segments (segment, name: folder/node).
select crawldb.key, url, host, capture_time as time, segments.segment
from crawldb
join segments on segments.name = crawldb.capture_segment
where status in ('fetched', 'not_modified', 'duplicate', 'orphan') and fetch_status in ('fetched', 'not_modified')
order by segments.segment, crawldb.key
