-- Forgets the rate of a domain. Both kinds of server.
DELETE FROM krakerates WHERE domain = :domain;
