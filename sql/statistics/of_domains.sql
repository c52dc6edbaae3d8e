-- The fetches of an hour with the domains of their hosts.
-- In: fetches (fetches.sql), domains (host, domain).
select domain, hop, outcome, lpad(cast(bucket as string), 2, '0') as bucket, bucket >= 0 as is_answered, fetches, bytes, latency_ms, latency_ms2
from fetches
join domains on domains.host = fetches.host
