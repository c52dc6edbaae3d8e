-- The submissions of an hour, counted by domain and decision. A malformed URL has no domain.
-- In: submissions, hour (begins, ends).
select coalesce(domain, '') as domain, decision, cast(count(*) as bigint) as submissions
from submissions
cross join hour
where time >= hour.begins and time < hour.ends
group by coalesce(domain, ''), decision
