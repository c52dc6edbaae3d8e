-- The same, where domains have no limit.
-- In: of_hosts (by_host.sql or any_host.sql).
select key, host, domain, is_requisite, due, worth, reason
from of_hosts
