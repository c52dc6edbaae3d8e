-- What release.sql does, in a SQLite file.
UPDATE kraakeslots
SET next_ms = CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) + :rest_ms
WHERE slot = ':slot' AND next_ms = :next_ms;
