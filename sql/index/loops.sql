-- The pages of each loop of at most five canonical links, with the page that stays: the best by the order of duplicates.
-- In: steps (pages by canonical links), candidates (pages that may be indexed, with what the order goes by).
select
  looped.key,
  first_value(looped.key) over (
    partition by looped.loop
    order by
      candidates.score desc, candidates.fetched_time desc nulls last, candidates.is_https desc,
      candidates.length_chars, candidates.key
    rows between unbounded preceding and unbounded following
  ) as best
from (
  select key, least(key, step_1, step_2, step_3, step_4, step_5) as loop
  from steps
  where key in (step_2, step_3, step_4, step_5)
) as looped
join candidates on candidates.key = looped.key
