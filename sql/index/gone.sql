-- Pages that are to be deleted from the index: they are in it no more, or with something else.
-- In: indexed (rows of the table of pages of the version before), listed (those of the next one).
select indexed.key
from indexed
left join listed on listed.key = indexed.key and listed.digest = indexed.digest
where listed.key is null
order by indexed.key
