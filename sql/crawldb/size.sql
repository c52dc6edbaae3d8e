-- About how many bytes an update has in memory at once, if it takes all rows together.
-- In: all_old, pages, all_links.
select
  250 * ((select count(*) from all_old) + (select count(*) from pages)) + 100 * (select count(*) from all_links) as size_bytes
