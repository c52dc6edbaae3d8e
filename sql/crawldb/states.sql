-- Rows of URLs of which only the last event is left.
-- In: all_states (rows after events, with place and places).
select *
from all_states
where place + 1 = places
