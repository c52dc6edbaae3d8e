"""What sorts and joins the tables of export and linker: DuckDB on one machine, Spark on many.

How data flows: a stage opens an engine (`open_engine`), tells it which Parquet files of the store are which table, and
reads the answer of a query as batches in the order of its `order by` (`stream`). A query is a file of `sql/`; both
engines run the same text, so an export has the same bytes with either.

* `duck`: DuckDB in this process. Files of a remote store are read where they are (`remote`); sorting spills to scratch.
* `spark`: Spark. It reads `spark.dfs_url`, or copies in scratch, sorts by ranges in many tasks, and leaves sorted parts
  in a hidden folder of the export, or in scratch; the stream reads them one after the other.

After a crash nothing of an engine is needed: the next run of the stage empties scratch and deletes hidden folders.
"""

from crawl_lib.engine.engine import Engine, Room, in_batches, open_engine, require_engine, sql_text
