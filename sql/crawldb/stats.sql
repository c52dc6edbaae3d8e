-- Sums over all rows: hosts, when rows are due, scores. One row.
-- In: crawldb, settings (now).
select
  count(*) as hosts,
  cast(coalesce(sum(due), 0) as bigint) as due,
  cast(coalesce(sum(due_day), 0) as bigint) as due_day,
  cast(coalesce(sum(due_week), 0) as bigint) as due_week,
  cast(coalesce(sum(due_30_days), 0) as bigint) as due_30_days,
  min(least) as least, max(highest) as highest
from (
  select
    host,
    count(case when fetch_time <= settings.now then 1 end) as due,
    count(case when fetch_time <= settings.now + interval '1' day then 1 end) as due_day,
    count(case when fetch_time <= settings.now + interval '7' day then 1 end) as due_week,
    count(case when fetch_time <= settings.now + interval '30' day then 1 end) as due_30_days,
    min(score) as least, max(score) as highest
  from crawldb
  cross join settings
  group by host
) as of_hosts
