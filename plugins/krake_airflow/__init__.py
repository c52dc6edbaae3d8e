"""What joins Krake to Airflow, and nothing of the crawler itself.

A DAG file asks `parsing` for the `configs`, one a crawl, and sets out `operators`; an operator finds the config of its
crawl on the machine it runs on, fetches secrets (`connections`), makes one call of `crawl_lib.stages`, and returns a
small mapping of paths and counts. While it runs it reports through `watching`: to the task's log, to the task state
store, and, where the DAG runs in this very process (`run`, behind `make crawl`), to the display. `settings` holds every
setting of Airflow that Krake changes, `database` knows whether Airflow's database is made, `server` starts and stops an
Airflow of one machine, `ui` is what `make ui` runs, and `remote` is how `make crawl` has its run carried out there.
`python -m krake_airflow` starts `run` or `ui`.

After a crash nothing here has to be repaired: a task that runs again makes the same call, and the stage finds in
Krake's own files what is done. Airflow's state says only which calls are still to be made.
"""
