-- The postings of each word, the highest weights first: a page's tf, times the logarithm of pages by pages with the word.
-- In: words (word, url, tf: a row for each word of each page), limits (pages: with words; most: postings of a word).
select word as key, found as pages, url, tf_idf
from (
  select
    words.word, words.url, words.found, limits.most, words.place,
    round(words.tf * ln(cast(limits.pages as double) / cast(words.found as double)), 9) as tf_idf
  from (
    select
      word, url, tf, count(*) over (partition by word) as found,
      row_number() over (partition by word order by tf desc, url) as place
    from words
  ) as words
  cross join limits
) as weighed
where place <= most
order by word, place
