-- Lines that are on half of a host's pages or more; by host, the most frequent first.
-- In: lines (host, line: once a page), hosts (host, pages), limits (least: pages with the line).
select hosts.host, hosts.pages, counted.line, counted.pages_with_line
from (
  select host, line, count(*) as pages_with_line
  from lines
  group by host, line
) as counted
join hosts on hosts.host = counted.host
cross join limits
where 2 * counted.pages_with_line >= hosts.pages and counted.pages_with_line >= limits.least
order by hosts.host, counted.pages_with_line desc, counted.line
