-- The score that each page had when a round found its links.
-- In: stood (mark, segment, score in billionths), marks (key, mark).
select
  marks.key, stood.segment,
  cast(cast(stood.score as decimal(19, 0)) * cast('0.000000001' as decimal(9, 9)) as decimal(18, 9)) as score
from stood
join marks on marks.mark = stood.mark
