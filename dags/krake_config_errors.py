"""
### Krake: configs that make no DAG

This file makes no DAG, and raises the faults of configs. Airflow shows the faults on its page Home as an import error.
The other DAG files must not raise, or else all their DAGs would go away: these files show a grey DAG for each config
with a fault.
"""

from __future__ import annotations

from krake_airflow.parsing import require_good_configs

require_good_configs()
