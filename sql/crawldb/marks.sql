-- The URLs whose scores rounds may change before other pages read them: those that were visited or injected, or that
-- redirects lead to. `score`: in billionths, -4611686018427387904 if the version before has no row of a page; `is_fixed`: 1 where
-- links do not change it, as for seeds.
-- In: events, hops_found, old.
select
  met.key,
  coalesce(
    cast(cast(case when old.status <> 'requisite' then old.score end as decimal(20, 9)) * 1000000000 as bigint),
    -4611686018427387904
  ) as score,
  cast(case when old.depth = 0 then 1 else 0 end as bigint) as is_fixed
from (
  select key
  from events
  union
  select key
  from hops_found
) as met
left join old on old.key = met.key
order by met.key
