-- The words of pages with their counts and weights, in order of pages.
-- In: counts (key, host, word, count), weights (host, word, weight), limits (plain: the weight of all other words).
select counts.key, counts.host, counts.word, counts.count, coalesce(weights.weight, limits.plain) as weight
from counts
cross join limits
left join weights on weights.host = counts.host and weights.word = counts.word
where counts.count > 0
order by counts.key, counts.word
