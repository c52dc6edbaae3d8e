-- Keys of one key server by state: 1 queued, 2 crawled, 3 gone. `krake keys check` runs this file (SQLite too).
SELECT keyinfo, COUNT(*) FROM kraakekeys GROUP BY keyinfo;
