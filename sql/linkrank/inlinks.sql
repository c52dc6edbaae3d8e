-- By target, one link from each group of pages: that from the smallest key.
-- In: kept (source, target, source_group).
select target, min(source) as source
from kept
group by target, source_group
order by target, source
