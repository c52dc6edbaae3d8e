-- How many crawled pages there are: keys with a capture of status 200 of an accepted type.
-- In: captures (rows of `pages`), accepted (mime: types in lower case that are exported).
select count(distinct key) as pages
from captures
where status = 200
  and lower(coalesce(mime_detected, '')) in (select mime from accepted)
