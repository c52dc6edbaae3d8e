-- A row for the column `line` of krakemembers; none for a missing table, and for one of an earlier Krake.
SELECT 1 FROM information_schema.columns
WHERE table_schema = DATABASE() AND table_name = 'krakemembers' AND column_name = 'line';
