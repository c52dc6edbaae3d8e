-- What two replicas compare before they read any key: for each first two hex digits and each state, the number of keys
-- and the sum of their last 15 digits. A SHA-1's tail is as good as random, so equal sums mean equal sets.
-- Krake asks prefix by prefix, with other bounds in place of the two below; the file itself takes the whole table.
-- MySQL and MariaDB only: a SQLite file is summed by Krake.
SELECT LEFT(hash, 2) AS prefix, keyinfo, COUNT(*),
       CAST(SUM(CAST(CONV(RIGHT(hash, 15), 16, 10) AS UNSIGNED)) AS CHAR) AS tails
FROM kraakekeys
WHERE hash BETWEEN '0000000000000000000000000000000000000000' AND 'ffffffffffffffffffffffffffffffffffffffff'
GROUP BY prefix, keyinfo;
