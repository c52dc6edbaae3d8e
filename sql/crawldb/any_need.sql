-- How many new captures name requisites, or are requisites that redirect: 0 in a crawl of pages alone.
-- In: links, events.
select cast(
  (select count(*) from links where rule = 'requisite')
  + (select count(*) from events where is_requisite and redirect_url is not null) as bigint) as needs
