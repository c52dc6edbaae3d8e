-- The same, with `domain_limit` as the reason where so many better ones of its domain are there.
-- Requisites have no such limit.
-- In: of_hosts (by_host.sql or any_host.sql), settings.
select
  key, host, domain, is_requisite, due, worth,
  case when reason is not null then reason when is_requisite = 0 and of_domain > settings.max_per_domain then 'domain_limit' end as reason
from (
  select of_hosts.*, row_number() over (partition by domain, reason, is_requisite order by worth desc, due, key) as of_domain
  from of_hosts
) as ranked
cross join settings
