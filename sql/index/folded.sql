-- Where the canonical links of each page end: at the page itself where they have no end in five steps.
-- In: candidates (pages that may be indexed), steps (pages by canonical links), loops (key, best).
select
  candidates.key,
  case
    when steps.key is null then candidates.key
    when steps.step_6 is null
      then coalesce(steps.step_5, steps.step_4, steps.step_3, steps.step_2, steps.step_1)
    else coalesce(loops.best, candidates.key)
  end as target
from candidates
left join steps on steps.key = candidates.key
left join loops on loops.key = steps.step_5
