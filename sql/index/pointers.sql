-- Pages whose canonical link names another page that may be indexed, also by way of redirects.
-- In: candidates (pages that may be indexed), ends (key, target: where redirects lead).
select pages.key, targets.key as target
from candidates as pages
left join ends on ends.key = pages.canonical
join candidates as targets on targets.key = coalesce(ends.target, pages.canonical)
where targets.key <> pages.key
