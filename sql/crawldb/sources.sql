-- Whose links are in new segments, and what they hand on. `counts`: whether these links are the page's from now on;
-- `given`: what each hands on, which is for plug-ins to say (null: they lead nowhere).
-- A page hands on the score that it had before its round; nothing, where the scores are a rank.
-- In: schedule (ranked), standing (key, segment, score: where it is another one than that of the version before), events,
-- old, facts (metadata, max_depth, score), counted (key, segment, redirects: hops to a page that leads on by a
-- meta refresh, or is a sitemap).
select
  events.key, events.segment, min(events.moment) as moment, min(events.depth) as depth,
  max(coalesce(facts.max_depth, 2147483647)) as max_depth, max(coalesce(counted.redirects, 0)) as redirects,
  max(case
    when schedule.ranked then cast(0 as decimal(18, 9))
    else coalesce(standing.score, old.score, facts.score, cast(0 as decimal(18, 9)))
  end) as score,
  max(case when events.is_newest then 1 else 0 end) as counts, cast(0 as decimal(18, 9)) as given
from events
cross join schedule
left join standing on standing.key = events.key and standing.segment = events.segment
left join old on old.key = events.key
left join counted on counted.key = events.key and counted.segment = events.segment
left join facts on facts.metadata = events.metadata
where events.kind = 'capture'
group by events.key, events.segment
