-- First, of each reason, how many URLs were not listed for it, and when the first of them may be; then the list.
-- By keys, which are SHA-1 sums: so it is shuffled, and hosts are spread over it.
-- In: verdicts (verdicts.sql), crawldb.
select
  0 as is_url, reason, count(*) as rows_of, min(due) as first_due, null as key, null as url, null as depth,
  null as redirects, null as retries, null as metadata, null as fetched_time, null as etag, null as last_modified,
  null as capture_segment, null as capture_file, null as capture_offset, null as capture_time, null as capture_digest,
  null as score, null as status
from verdicts
group by reason
union all
select
  1, verdicts.reason, 1, verdicts.due, crawldb.key, crawldb.url, crawldb.depth, crawldb.redirects, crawldb.retries,
  crawldb.metadata, crawldb.fetched_time, crawldb.etag, crawldb.last_modified, crawldb.capture_segment,
  crawldb.capture_file, crawldb.capture_offset, crawldb.capture_time, crawldb.capture_digest,
  crawldb.score, crawldb.status
from verdicts
join crawldb on crawldb.key = verdicts.key
where verdicts.reason = 'listed'
order by is_url, reason, key
