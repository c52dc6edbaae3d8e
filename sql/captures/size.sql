-- About how many bytes it takes to sort all captures at once.
-- In: all_old (rows of the version before), read (captures of the segments that the version lacks).
select 300 * ((select count(*) from all_old) + (select count(*) from read)) as size_bytes
