-- The statistics of a day: the sums of its hours.
-- In: hours (rows of hour.sql).
select domain, measure, name, cast(sum(number) as bigint) as number
from hours
group by domain, measure, name
order by domain, measure, name
