-- The scores of URLs before the first round: of those that were visited or injected, or that redirects lead to.
-- `score`: null, if there is no row yet; `is_fixed`: 1 where links do not change it, as for seeds.
-- In: events, hops_found, old.
select met.key, old.score, case when old.depth = 0 then 1 else 0 end as is_fixed
from (
  select key
  from events
  union
  select key
  from hops_found
) as met
left join old on old.key = met.key
