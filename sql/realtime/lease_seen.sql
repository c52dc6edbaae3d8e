-- Notes that a fetcher was heard. Both kinds of server.
REPLACE INTO krakemembers VALUES (:fetcher, :now);
