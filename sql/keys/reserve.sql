-- Reserves a slot for `:hold_ms` milliseconds, from now or from the end of what is reserved already; not if that is more
-- than `:ahead_ms` away. Rows affected: 0 if nothing was reserved. Krake puts numbers and a hash in the place of words
-- with a colon. MySQL and MariaDB; by their own clock, which is the same for all nodes.
INSERT INTO kraakeslots (slot, next_ms)
VALUES (':slot', TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000 + :hold_ms)
ON DUPLICATE KEY UPDATE next_ms = IF(
    next_ms <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000 + :ahead_ms,
    GREATEST(next_ms, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000) + :hold_ms,
    next_ms
);
