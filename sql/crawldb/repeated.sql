-- The URLs to which more than one thing happened.
-- In: happened.
select key
from happened
group by key
having count(*) > 1
