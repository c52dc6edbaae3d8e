-- Gives the leases of a fetcher back. Both kinds of server.
UPDATE krakeleases SET until_ms = :now - 1 WHERE fetcher = :fetcher AND until_ms >= :now;
DELETE FROM krakemembers WHERE fetcher = :fetcher;
