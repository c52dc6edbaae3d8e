-- Deletes rows. Both kinds of server.
DELETE FROM krakepages WHERE hash IN (:keys);
