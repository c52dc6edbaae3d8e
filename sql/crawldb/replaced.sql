-- Captures that have newer ones now, with other links. Of pages whose links plug-ins leave out none were counted.
-- In: dropping (key), events, old, facts.
select old.key, old.capture_segment
from events
join old on old.key = events.key
left join facts on facts.metadata = old.metadata
where events.is_newest and old.depth < coalesce(facts.max_depth, 2147483647)
  and not exists (select 1 from dropping where dropping.key = old.key)
