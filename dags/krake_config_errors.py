"""
### Krake: configs that make no DAG

This file makes no DAG. It raises what is wrong with configs, which Airflow shows on its page Home as an import error.
The file of the other DAGs shows a grey DAG in the place of each, and may not raise: all its DAGs would go away.
"""

from __future__ import annotations

from krake_airflow.parsing import require_good_configs

require_good_configs()
