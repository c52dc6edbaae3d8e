-- Forgets hosts of which nothing was heard for so long. Both kinds of server.
DELETE FROM krakehosts WHERE seen_ms < :now - :keep_ms;
