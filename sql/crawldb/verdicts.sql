-- What is said of each URL.
-- In: judged (by_place.sql or any_place.sql).
select key, due, reason
from judged
