-- What sitemaps in new segments say of pages: when one has changed (`changed`), and how often it does (`every_s`).
-- In: links, sources.
select
  links.target as key, sources.moment,
  timestamp '1970-01-01 00:00:00'
    + cast(nullif(regexp_extract(links.rel, 'lastmod=([0-9]+)', 1), '') as bigint) * interval '1' second as changed,
  cast(nullif(regexp_extract(links.rel, 'every_s=([0-9]+)', 1), '') as bigint) as every_s
from links
join sources on sources.key = links.source and sources.segment = links.segment
where links.element = 'loc' and links.followed and links.rel <> ''
