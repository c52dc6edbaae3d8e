-- When documents were written into rows, and with which epochs. Both kinds of server.
SELECT hash, epoch, fetched_ms FROM krakepages WHERE hash IN (:keys) AND data IS NOT NULL;
