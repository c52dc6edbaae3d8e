-- Sets the rate of a domain. Both kinds of server.
REPLACE INTO krakerates (domain, delay_ms, connections, is_blocked) VALUES (:domain, :delay, :connections, :blocked);
