-- Lines that are on half of a host's pages or more; by host, the most frequent first.
-- In: said (host, line: once a page, and an empty one for each page), limits (least: pages with the line).
select hosts.host, hosts.pages, counted.line, counted.pages_with_line
from (
  select host, line, count(*) as pages_with_line
  from said
  where line <> ''
  group by host, line
) as counted
join (
  select host, count(*) as pages
  from said
  where line = ''
  group by host
) as hosts on hosts.host = counted.host
cross join limits
where 2 * counted.pages_with_line >= hosts.pages and counted.pages_with_line >= limits.least
order by hosts.host, counted.pages_with_line desc, counted.line
