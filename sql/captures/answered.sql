-- The newest answer to each URL. Failures that pass are no answers.
-- In: visits (rows of `pages` with segment, its place among the inputs).
select key, url, status, outcome, redirect_url
from (
  select
    key, url, status, outcome, redirect_url,
    row_number() over (partition by key order by time desc, segment desc, warc_file desc, warc_offset desc) as place
  from visits
  where retry_at is null
    and status is not null and outcome <> 'server_error'
) as ranked
where place = 1
