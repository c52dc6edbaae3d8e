-- The same once the seeds of a round were taken in, as after.sql does it.
-- In: marks, seeds, seed_turns (folder, turn), this_turn (turn).
select
  marks.key,
  case
    when given.key is null then marks.score
    when given.seen = 'seed_overwrite' then coalesce(given.last_score, cast(1 as decimal(18, 9)))
    when given.seen = 'seed_update' then coalesce(given.newest_score, marks.score, cast(1 as decimal(18, 9)))
    when marks.score is null then coalesce(given.first_score, cast(1 as decimal(18, 9)))
    else marks.score
  end as score,
  case when given.depth = 0 then 1 else marks.is_fixed end as is_fixed
from marks
left join (
  select
    key, min(seen) as seen, min(depth) as depth,
    max(case when place = 1 then score end) as first_score,
    max(case when place = places then score end) as last_score,
    max(case when place = scored then score end) as newest_score
  from (
    select numbered.*, max(case when score is not null then place end) over (partition by key) as scored
    from (
      select
        seeds.key, seeds.seen, seeds.depth, seeds.score,
        row_number() over (partition by seeds.key order by seeds.moment, seeds.folder) as place,
        count(*) over (partition by seeds.key) as places
      from seeds
      join seed_turns on seed_turns.folder = seeds.folder
      join this_turn on this_turn.turn = seed_turns.turn
    ) as numbered
  ) as placed
  group by key
) as given on given.key = marks.key
