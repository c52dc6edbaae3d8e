"""Krake under a running Airflow (`make ui`), which takes minutes; it needs no server but that."""
