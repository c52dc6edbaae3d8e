import pytest

pytest.register_assert_rewrite("tests.contracts.keystore")

from tests.contracts.mariadb import mariadb, three_mariadbs  # noqa: E402

__all__ = ["mariadb", "three_mariadbs"]
