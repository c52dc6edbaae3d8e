-- All rates that operators have set. Both kinds of server.
SELECT domain, delay_ms, connections, is_blocked FROM krakerates ORDER BY domain;
