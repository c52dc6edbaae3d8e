-- How many pages with words each host has, and the weight there of a word that none of them has.
-- In: counts (host, count: 0 once a page), limits (least: pages of a host whose words get weights; plain: the weight of
-- all other words).
select
  counts.host, count(*) as pages,
  case
    when count(*) >= max(limits.least)
    then cast(round(max(limits.plain) * (ln(1 + cast(count(*) as double)) + 1)) as integer)
    else max(limits.plain)
  end as unseen
from counts
cross join limits
where counts.count = 0
group by counts.host
