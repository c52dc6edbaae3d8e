-- What the plug-ins of a moment have made of its rows.
-- In: scored (columns as the moment's caller asks for them).
select *
from scored
