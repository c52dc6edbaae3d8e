-- Events with the status that the matrix gives their URLs, and the interval before bounds.
-- In: event_pairs, matrix (stored, seen, believed, visit, content), schedule (one row).
select
  judged.*, matrix.visit, matrix.content, schedule.always_s, schedule.min_s, schedule.max_s,
  case
    when matrix.believed = 'kept' then judged.stored
    when matrix.believed = 'restored' then judged.stored_fetch
    else matrix.believed
  end as status,
  case
    when matrix.believed in ('kept', 'restored') then judged.stored_fetch
    when matrix.believed = 'duplicate' then 'not_modified'
    else matrix.believed
  end as fetch_status,
  judged.kind = 'seed' and (judged.is_new or judged.seen <> 'seed_keep') as is_seeded,
  judged.is_full and matrix.content in ('new', 'same') as is_captured,
  cast(case
    when matrix.visit = 'sooner' then round(judged.interval_s * (1 - schedule.faster))
    when matrix.visit = 'later' then round(judged.interval_s * (1 + schedule.slower))
    when matrix.visit = 'longer' then least(schedule.gone_s, round(judged.interval_s * cast(1.5 as double)))
    else judged.interval_s
  end as bigint) as scheduled_s
from event_pairs as judged
cross join schedule
left join matrix on matrix.stored = judged.stored and matrix.seen = judged.seen
