-- The pages of each loop of at most five canonical links; `class`: the loop.
-- In: steps (pages by canonical links).
select key, least(key, step_1, step_2, step_3, step_4, step_5) as class
from steps
where key in (step_2, step_3, step_4, step_5)
