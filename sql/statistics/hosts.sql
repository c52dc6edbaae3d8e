-- The hosts of an hour's fetches.
-- In: fetches (fetches.sql).
select distinct host
from fetches
