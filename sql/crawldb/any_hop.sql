-- How many visits and links may lead on without a link: 0 where hops.sql has no rows.
-- In: links, events.
select cast(
  (select count(*) from links where element in ('meta', 'sitemap'))
  + (select count(*) from events where redirect_url is not null) as bigint) as hops
