-- The captures of pages that are crawled once. `seen`: when each was seen last.
-- In: visits (rows of `pages`).
select visits.*, time as seen
from visits
where refers_to is null
