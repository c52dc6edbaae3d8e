from tests.contracts.mariadb import mariadb

__all__ = ["mariadb"]
