-- The detected types of all captures of status 200, in lower case; '' where none was detected.
-- In: captures (rows of `pages`).
select distinct lower(coalesce(mime_detected, '')) as mime
from captures
where status = 200
