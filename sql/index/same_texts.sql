-- The pages where canonical links end; `class`: their text.
-- In: folded (key, target), candidates (pages that may be indexed).
select folded.key, candidates.content as class
from folded
join candidates on candidates.key = folded.key
where folded.target = folded.key
