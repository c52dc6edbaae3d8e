-- Domains that may have more URLs, or more hosts, than some budget allows.
-- In: tried, settings.
select domain, urls, hosts
from (
  select domain, count(*) as urls, count(distinct host) as hosts
  from tried
  where begun = 1 or reason is null
  group by domain
) as counted
cross join settings
where urls > least_pages or hosts > least_hosts
