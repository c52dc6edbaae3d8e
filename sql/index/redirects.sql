-- URLs whose newest answer leads elsewhere, as captures say it.
-- In: answered (the newest answer to each URL).
select key, redirect_url
from answered
where outcome = 'redirect' and redirect_url is not null
order by key
