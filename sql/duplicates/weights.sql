-- The weight of each word of the hosts with enough pages: its smoothed idf, ln((1 + pages) / (1 + pages with it)) + 1.
-- In: counts (host, word: once a page that has it), hosts (host, pages), limits (least: pages; plain: the weight of 1).
select
  counts.host, counts.word,
  cast(
    round(max(limits.plain) * (ln((1 + cast(max(hosts.pages) as double)) / (1 + cast(count(*) as double))) + 1))
    as integer
  ) as weight
from counts
join hosts on hosts.host = counts.host
cross join limits
where counts.count > 0 and hosts.pages >= limits.least
group by counts.host, counts.word
