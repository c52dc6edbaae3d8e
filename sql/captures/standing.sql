-- The newest full capture of each page whose newest answer is that it is there, or is as it was; segment by segment.
-- In: newest (key, url, host, time, segment), answered (the newest answer to each URL).
select newest.key, newest.url, newest.host, newest.time, newest.segment
from newest
join answered on answered.key = newest.key
where answered.status = 200 or answered.outcome = 'not_modified'
order by newest.segment, newest.key
