-- The page of the index that stands for each page: itself, where its canonical links end, or the best with its text.
-- In: folded (key, target), candidates (pages that may be indexed, with what the order of duplicates goes by).
select folded.key, folded.target, same.best as owner
from folded
join (
  select
    ends.key,
    first_value(ends.key) over (
      partition by candidates.content
      order by
        candidates.score desc, candidates.fetched_time desc nulls last, candidates.is_https desc,
        candidates.length_chars, candidates.key
      rows between unbounded preceding and unbounded following
    ) as best
  from folded as ends
  join candidates on candidates.key = ends.key
  where ends.target = ends.key
) as same on same.key = folded.target
