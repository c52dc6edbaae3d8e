-- Makes every URL unknown to this key server, for good. `krake keys create --drop` runs this file (SQLite too).
DROP TABLE IF EXISTS kraakekeys;
DROP TABLE IF EXISTS krakenote;
DROP TABLE IF EXISTS kraakeslots;
