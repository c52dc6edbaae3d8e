-- The pages of the index with all that the index and its table of pages have of them, but texts; in order of keys.
-- In: owners (key, owner), candidates, segments (segment, name), languages (host, language), anchored (key, digest),
-- boosts (key, boost), near (groups of near duplicates).
select
  pages.key, pages.own, coalesce(pages.language, languages.language) as language, anchored.digest as anchors,
  boosts.boost, pages.host, near.group_key as near, pages.unavailable_after, segments.name as segment,
  pages.warc_file, pages.warc_offset, pages.warc_length
from owners
join candidates as pages on pages.key = owners.key
join segments on segments.segment = pages.segment
left join languages on languages.host = pages.host
left join anchored on anchored.key = pages.key
left join boosts on boosts.key = pages.key
left join near on near.key = pages.key
where owners.owner = owners.key
order by pages.key
