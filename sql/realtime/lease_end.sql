-- Gives the leases of a fetcher back, unless another line has replaced this one. Both kinds of server.
UPDATE krakeleases SET until_ms = :now - 1
WHERE fetcher = :fetcher AND until_ms >= :now
    AND EXISTS (SELECT 1 FROM krakemembers m WHERE m.fetcher = :fetcher AND m.line = :line);
DELETE FROM krakemembers WHERE fetcher = :fetcher AND line = :line;
