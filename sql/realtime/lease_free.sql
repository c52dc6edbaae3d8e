-- The parts that no fetcher ever had. Both kinds of server.
SELECT part FROM krakeleases WHERE until_ms = 0;
