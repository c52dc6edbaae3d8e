-- Drops krakemembers as an earlier Krake made it. Its rows count for 4 s only. Both kinds of server.
DROP TABLE IF EXISTS krakemembers;
