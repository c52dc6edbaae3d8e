-- The bands of signatures, a row each, of the first of pages with the very same words; pages of a band have places.
-- In: vectors (with bands: 5 hex digits each), same, places (band).
select key, band, value, row_number() over (partition by band, value order by key) as place
from (
  select vectors.key, places.band, substring(vectors.bands, 1 + 5 * places.band, 5) as value
  from vectors
  join same on same.leader = vectors.key
  cross join places
) as cut
