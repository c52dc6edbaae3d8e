-- What a round hands on to URLs whose scores are marked: as found.sql has it of all rounds.
-- In: said (said.sql, of the round), hops, named, marks, this_turn (moment, first_segment, end_segment).
select key, min(moment) as linked_at, min(depth) as depth, max(score) as score
from (
  select key, moment, depth, score
  from said
  union all
  select hops.key, hops.moment, hops.depth, hops.score
  from hops
  join this_turn on hops.segment >= this_turn.first_segment and hops.segment < this_turn.end_segment
  where hops.given is not null
  union all
  select named.key, named.moment, 1, cast(0 as decimal(18, 9))
  from named
  join this_turn on this_turn.moment = named.moment
) as link
where key in (select key from marks)
group by key
