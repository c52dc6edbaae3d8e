-- When the next turn of a slot is free, and this server's clock. MySQL and MariaDB.
SELECT next_ms, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000
FROM kraakeslots
WHERE slot = ':slot';
