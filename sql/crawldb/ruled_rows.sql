-- Rows with the status that the rule of orphans gives them: `becomes`, null where the rule changes nothing.
-- In: current_rows, schedule.
select
  linked.*,
  case
    when linked.status in ('unfetched', 'fetched', 'not_modified') and linked.inlinks = 0 and linked.depth > 0
      then schedule.orphans
  end as becomes,
  cast(least(schedule.gone_s, round(linked.interval_s * cast(1.5 as double))) as bigint) as longer_s
from current_rows as linked
cross join schedule
