-- As lease_columns.sql, in SQLite.
SELECT 1 FROM pragma_table_info('krakemembers') WHERE name = 'line';
