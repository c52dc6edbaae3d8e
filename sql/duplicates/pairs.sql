-- Pairs of pages that have a band in common, with what is compared of them.
-- In: vectors, bands, next_ones (places: of how many after it in its band a page is compared with).
select
  pairs.one, first.host as one_host, first.words as one_words, first.counts as one_counts,
  first.weights as one_weights, pairs.other, second.host as other_host, second.words as other_words,
  second.counts as other_counts, second.weights as other_weights
from (
  select distinct bands.key as one, others.key as other
  from bands
  join bands as others on others.band = bands.band and others.value = bands.value
  cross join next_ones
  where others.place > bands.place and others.place <= bands.place + next_ones.places
) as pairs
join vectors as first on first.key = pairs.one
join vectors as second on second.key = pairs.other
