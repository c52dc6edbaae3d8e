-- What turn.sql does, in a SQLite file.
SELECT next_ms, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)
FROM kraakeslots
WHERE slot = ':slot';
