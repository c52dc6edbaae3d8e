-- The scores that marked URLs have in the end.
-- In: left_over (mark, score in billionths), marks (key, mark).
select
  marks.key,
  cast(cast(left_over.score as decimal(19, 0)) * cast('0.000000001' as decimal(9, 9)) as decimal(18, 9)) as score
from left_over
join marks on marks.mark = left_over.mark
