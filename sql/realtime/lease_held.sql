-- The parts of a fetcher, with their epochs. Both kinds of server.
SELECT part, epoch FROM krakeleases WHERE fetcher = :fetcher AND until_ms > :now;
