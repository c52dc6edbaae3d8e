-- URLs that links have found.
-- In: touched.
select key, url, depth, score
from touched
where is_new
