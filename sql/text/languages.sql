-- The most frequent language of each host, for pages that neither declare one nor are long enough to tell. Of languages
-- with as many pages, the first by its code.
-- In: said (host, language: null where unknown), a row for each page.
select host, language
from (
  select host, language, row_number() over (partition by host order by pages desc, language) as place
  from (
    select host, language, count(*) as pages
    from said
    where language is not null
    group by host, language
  ) as counted
) as ranked
where place = 1
order by host
