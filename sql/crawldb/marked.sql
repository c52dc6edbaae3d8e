-- The marked scores after a round, as rows.sql would leave them.
-- In: seeded (seeded.sql), gains (gains.sql), events (of the round).
select
  key,
  case
    when is_fixed = 1 or has_gained = 0 then known
    when known is null then gained
    else greatest(known, coalesce(gained, known))
  end as score,
  case when is_fixed = 1 or least_depth = 0 then 1 else 0 end as is_fixed
from (
  select
    seeded.key, case when gains.key is null then 0 else 1 end as has_gained,
    case when visited.key is null then seeded.score else coalesce(seeded.score, cast(0 as decimal(18, 9))) end as known,
    case when visited.depth = 0 then 1 else seeded.is_fixed end as is_fixed,
    case when gains.linked_at is not null then gains.score end as gained, gains.depth as least_depth
  from seeded
  left join gains on gains.key = seeded.key
  left join (
    select key, min(depth) as depth
    from events
    where kind = 'capture'
    group by key
  ) as visited on visited.key = seeded.key
) as judged
