-- What reserve.sql does, in a SQLite file.
INSERT INTO kraakeslots (slot, next_ms)
VALUES (':slot', CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) + :hold_ms)
ON CONFLICT (slot) DO UPDATE
SET next_ms = max(next_ms, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)) + :hold_ms
WHERE next_ms <= CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) + :ahead_ms;
