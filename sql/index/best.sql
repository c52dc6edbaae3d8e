-- Of the pages of each class the one that stays: the best by the order of duplicates (duplicates/marked).
-- In: rivals (key, class), candidates (pages that may be indexed, with what the order goes by).
select
  rivals.key,
  first_value(rivals.key) over (
    partition by rivals.class
    order by
      candidates.score desc, candidates.fetched_time desc nulls last, candidates.is_https desc,
      candidates.length_chars, candidates.key
    rows between unbounded preceding and unbounded following
  ) as best
from rivals
join candidates on candidates.key = rivals.key
