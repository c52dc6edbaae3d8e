-- URLs that may be listed for the first time, for the rules for traps.
-- In: weighed.
select key, url, host
from weighed
where reason is null and begun = 0
