-- The scores that marked URLs have in the end.
-- In: seeded (seeded.sql, of what comes after all rounds).
select key, score
from seeded
where score is not null
