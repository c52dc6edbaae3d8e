-- The hosts of the URLs that may be listed.
-- In: candidates.
select distinct host
from candidates
where reason is null
