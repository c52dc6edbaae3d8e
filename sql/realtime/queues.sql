-- How many rows of each authority are due. MySQL and MariaDB only: several schedulers need one of them.
SELECT SUBSTRING_INDEX(SUBSTRING_INDEX(SUBSTRING_INDEX(request, '"url":"', 2), '"url":"', -1), '/', 3), COUNT(*)
FROM krakepages
WHERE part IN (:parts) AND due_ms >= 0
GROUP BY 1;
