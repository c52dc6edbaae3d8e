-- Keys of one key server by state: 1 queued, 2 crawled, 3 gone. `krake status` runs this file (SQLite too).
-- On MySQL Krake asks range by range, by other bounds in place of these; the file itself takes the whole table.
SELECT keyinfo, COUNT(*)
FROM kraakekeys
WHERE hash BETWEEN '0000000000000000000000000000000000000000' AND 'ffffffffffffffffffffffffffffffffffffffff'
GROUP BY keyinfo;
