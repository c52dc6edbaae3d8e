-- What fetchers know of hosts. Both kinds of server.
SELECT hash, data FROM krakehosts WHERE hash IN (:keys);
