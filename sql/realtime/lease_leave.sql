-- Ends the leases of a fetcher on `:parts`, which it asks no more, unless another line has replaced this one. Both kinds
-- of server.
UPDATE krakeleases SET until_ms = :now - 1
WHERE part IN (:parts) AND fetcher = :fetcher AND until_ms >= :now
    AND EXISTS (SELECT 1 FROM krakemembers m WHERE m.fetcher = :fetcher AND m.line = :line);
