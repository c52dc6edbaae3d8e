-- The best pages: the sum of the weights of their words, times their rank by the mean of all ranks.
-- In: found (key, url, tf_idf: a row for each word of a page), ranks (key, rank), limits (most: pages).
select url, score, words, rank
from (
  select scored.*, limits.most, row_number() over (order by score desc, url) as place
  from (
    select
      summed.url, summed.words, coalesce(ranks.rank / mean.rank, cast(1 as double)) as rank,
      round(summed.weight * coalesce(ranks.rank / mean.rank, cast(1 as double)), 9) as score
    from (
      select key, url, sum(tf_idf) as weight, count(*) as words
      from found
      group by key, url
    ) as summed
    cross join (select avg(rank) as rank from ranks) as mean
    left join ranks on ranks.key = summed.key
  ) as scored
  cross join limits
) as placed
where place <= most
order by score desc, url
