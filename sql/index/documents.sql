-- Pages that are to be added to the index, in order of keys.
-- In: texts (pages with their texts), anchored (key, anchors).
select texts.*, anchored.anchors
from texts
left join anchored on anchored.key = texts.key
order by texts.key
