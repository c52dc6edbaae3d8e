-- What changes the scores of marked URLs, in the order in which rounds do it: first seeds (step 0), then visits (1), then
-- what links and redirects hand on (2). The order of rows with the same turn, step and mark does not matter.
-- Of a seed, `score` replaces any score, and `otherwise` a missing one. Of a link, `factor` is multiplied with the score
-- that `source` has (the mark of its page, or -1), or with `otherwise` if that is missing; `is_open`: 1 where the link may
-- add a row. All three are in billionths; -4611686018427387904: null.
-- In: seeds, seed_turns (folder, turn), events, turns (segment, turn, moment), followed (followed.sql), hops, named,
-- marks (key, mark), schedule (ranked).
select
  cast(steps.turn as bigint) as turn, cast(steps.step as bigint) as step, marks.mark,
  case when schedule.ranked then cast(-1 as bigint) else coalesce(giving.mark, cast(-1 as bigint)) end as source,
  cast(steps.segment as bigint) as segment, cast(steps.depth as bigint) as depth,
  coalesce(cast(cast(steps.score as decimal(20, 9)) * 1000000000 as bigint), -4611686018427387904) as score,
  coalesce(cast(cast(steps.otherwise as decimal(20, 9)) * 1000000000 as bigint), -4611686018427387904) as otherwise,
  cast(cast(steps.factor as decimal(20, 9)) * 1000000000 as bigint) as factor, cast(steps.is_open as bigint) as is_open
from (
  select
    turn, 0 as step, key, cast(null as binary) as source, -1 as segment, min(depth) as depth,
    case
      when min(seen) = 'seed_overwrite'
        then coalesce(max(case when place = places then score end), cast(1 as decimal(18, 9)))
      when min(seen) = 'seed_update' then max(case when place = scored then score end)
    end as score,
    coalesce(
      max(case when seen = 'seed_keep' and place = 1 then score end), cast(1 as decimal(18, 9))) as otherwise,
    cast(1 as decimal(10, 9)) as factor, 0 as is_open
  from (
    select numbered.*, max(case when score is not null then place end) over (partition by turn, key) as scored
    from (
      select
        seed_turns.turn, seeds.key, seeds.seen, seeds.depth, seeds.score,
        row_number() over (partition by seed_turns.turn, seeds.key order by seeds.moment, seeds.folder) as place,
        count(*) over (partition by seed_turns.turn, seeds.key) as places
      from seeds
      join seed_turns on seed_turns.folder = seeds.folder
    ) as numbered
  ) as placed
  group by turn, key
  union all
  select
    turns.turn, 1, events.key, cast(null as binary), events.segment, min(events.depth), cast(null as decimal(18, 9)),
    cast(null as decimal(18, 9)), cast(1 as decimal(10, 9)), 0
  from events
  join turns on turns.segment = events.segment
  where events.kind = 'capture' and not events.is_requisite
  group by turns.turn, events.key, events.segment
  union all
  select
    turns.turn, 2, followed.key, followed.source, followed.segment, followed.depth, cast(null as decimal(18, 9)),
    followed.score, coalesce(followed.priority, cast(1 as decimal(10, 9))),
    case when followed.moment is null then 0 else 1 end
  from followed
  join turns on turns.segment = followed.segment
  union all
  select
    turns.turn, 2, hops.key, hops.source, hops.segment, hops.depth, cast(null as decimal(18, 9)), hops.score,
    cast(1 as decimal(10, 9)), 1
  from hops
  join turns on turns.segment = hops.segment
  where hops.given is not null
  union all
  select
    begun.turn, 2, named.key, cast(null as binary), -1, 1, cast(null as decimal(18, 9)), cast(0 as decimal(18, 9)),
    cast(1 as decimal(10, 9)), 1
  from named
  join (select distinct turn, moment from turns) as begun on begun.moment = named.moment
) as steps
join marks on marks.key = steps.key
left join marks as giving on giving.key = steps.source
cross join schedule
order by turn, step, mark
