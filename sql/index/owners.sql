-- The page of the index that stands for each page: itself, where its canonical links end, or the best with its text.
-- In: folded (key, target), same (key, best: of the pages with a text).
select folded.key, folded.target, same.best as owner
from folded
join same on same.key = folded.target
