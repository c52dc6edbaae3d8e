-- The same arcs by target.
-- In: arcs (source, target).
select target, source
from arcs
order by target, source
