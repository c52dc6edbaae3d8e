-- The parts of a fetcher, with their epochs; none for a line that another one has replaced. Both kinds of server.
SELECT part, epoch FROM krakeleases
WHERE fetcher = :fetcher AND until_ms > :now
    AND EXISTS (SELECT 1 FROM krakemembers m WHERE m.fetcher = :fetcher AND m.line = :line);
