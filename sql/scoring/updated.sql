-- URLs that were visited, or that links lead to, those that are new with their first score.
-- In: touched, initials (key, score).
select
  touched.key, url, status, depth, coalesce(initials.score, touched.score) as score, given, is_visited, is_changed,
  segment, moment
from touched
left join initials on initials.key = touched.key
