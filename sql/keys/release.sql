-- The next turn of a slot comes in `:rest_ms` milliseconds, if nothing was reserved since `:next_ms` was read there.
-- MySQL and MariaDB.
UPDATE kraakeslots
SET next_ms = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000 + :rest_ms
WHERE slot = ':slot' AND next_ms = :next_ms;
