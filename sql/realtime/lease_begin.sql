-- Makes the line of a scheduler the only one that renews the leases of a fetcher. Both kinds of server.
REPLACE INTO krakemembers VALUES (:fetcher, :now, :line);
