-- The pages whose links plug-ins leave out.
-- In: shares (key, segment, given).
select distinct key
from shares
where given is null
