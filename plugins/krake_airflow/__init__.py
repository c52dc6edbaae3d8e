"""What joins Krake to Airflow, and nothing of the crawler itself.

A DAG file asks `parsing` for the `configs`, one for each crawl, and sets out `operators`. An operator finds the config
of its crawl on its machine, fetches secrets (`connections`), makes one call of `crawl_lib.stages`, and returns a small
mapping of paths and counts. `watching` reports a task at work: to the task's log, to the task state store, and, if the
DAG runs in the same process (`run`, behind `make crawl`), to the display. `settings` holds every setting of Airflow
that Krake changes, `database` knows whether Airflow's database is made, `server` starts and stops an Airflow of one
machine, `ui` is the program of `make ui`, and with `remote` `make crawl` has its run carried out there. `python -m
krake_airflow` starts `run` or `ui`.

After a crash this package needs no repair: a repeated task makes the same call, and the stage finds in Krake's own
files the work already done. Airflow's state only says which calls remain.
"""
