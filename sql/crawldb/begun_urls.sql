-- URLs that were listed before, of hosts with new URLs that rules for traps look at.
-- In: weighed, grouped_new (host).
select weighed.key, weighed.url, weighed.host
from weighed
join (select distinct host from grouped_new) as hosts on hosts.host = weighed.host
where weighed.begun = 1
