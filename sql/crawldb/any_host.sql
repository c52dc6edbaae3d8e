-- What may be listed, where hosts have no limit, and are not spread: by_host.sql without its sorting.
-- In: candidates.
select key, host, domain, is_requisite, due, worth, reason
from candidates
where reason is null
