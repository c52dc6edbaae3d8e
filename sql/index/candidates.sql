-- Pages that may be indexed, with the scores and times that the CrawlDb has of them.
-- In: judged (pages with their texts; `reason`: why one may not be indexed), crawldb (rows of the newest version; none with `frontier.order: fifo`).
select
  judged.key, judged.host, judged.segment, judged.own, judged.content, judged.canonical, judged.language,
  coalesce(crawldb.score, 0) as score, coalesce(crawldb.fetched_time, judged.fetched_time) as fetched_time,
  judged.is_https, judged.length_chars, judged.unavailable_after, judged.warc_file, judged.warc_offset,
  judged.warc_length
from judged
left join crawldb on crawldb.key = judged.key
where judged.reason is null
