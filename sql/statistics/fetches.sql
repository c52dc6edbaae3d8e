-- The fetches of an hour, counted by host, kind, outcome and bucket of their latency.
-- A fetch without an answer has no latency. Bucket 59 has no upper end.
-- In: pages (rows of `pages`), hour (begins, ends).
select
  host,
  hop,
  outcome,
  bucket,
  cast(count(*) as bigint) as fetches,
  cast(coalesce(sum(length), 0) as bigint) as bytes,
  cast(sum(duration_ms) as bigint) as latency_ms,
  cast(sum(duration_ms * duration_ms) as bigint) as latency_ms2
from (
  select
    host,
    coalesce(hop, '') as hop,
    outcome,
    length,
    cast(duration_ms as bigint) as duration_ms,
    case
      when status is null then -1
      when duration_ms < 2 then 0
      else least(59, cast(floor(ln(cast(duration_ms as double)) / ln(cast(1.2 as double))) as integer))
    end as bucket
  from pages
  cross join hour
  where time >= hour.begins and time < hour.ends
) as fetched
group by host, hop, outcome, bucket
