-- The pages that one comes to by canonical links from each page, step by step.
-- In: pointers (key, target).
select
  one.key, one.target as step_1, two.target as step_2, three.target as step_3, four.target as step_4,
  five.target as step_5, six.target as step_6
from pointers as one
left join pointers as two on two.key = one.target
left join pointers as three on three.key = two.target
left join pointers as four on four.key = three.target
left join pointers as five on five.key = four.target
left join pointers as six on six.key = five.target
