-- The statistics of an hour: each number of each domain.
-- In: of_domains (of_domains.sql), submitted (submitted.sql).
select domain, measure, name, cast(sum(number) as bigint) as number
from (
  select domain, case when hop = 'E' then 'images' else 'urls' end as measure, '' as name, fetches as number from of_domains
  union all
  select domain, 'outcomes' as measure, outcome as name, fetches as number from of_domains
  union all
  select domain, 'bytes' as measure, '' as name, bytes as number from of_domains where bytes > 0
  union all
  select domain, 'latency' as measure, bucket as name, fetches as number from of_domains where is_answered
  union all
  select domain, 'latency_ms' as measure, bucket as name, latency_ms as number from of_domains where is_answered
  union all
  select domain, 'latency_ms2' as measure, bucket as name, latency_ms2 as number from of_domains where is_answered
  union all
  select domain, 'decisions' as measure, decision as name, submissions as number from submitted
  union all
  select domain, 'shares' as measure, '' as name, submissions as number from submitted where decision in ('new', 'waiting', 'known')
  union all
  select domain, 'hits' as measure, '' as name, submissions as number from submitted where decision = 'known'
) as counted
group by domain, measure, name
order by domain, measure, name
