"""The contract of storage on a real HDFS, and what only HDFS can do."""

from __future__ import annotations

import pytest

from tests.contracts.storage import StorageContract


class TestHdfsStorage(StorageContract):
    @pytest.fixture
    def storage(self, hdfs, open_in):
        return open_in(hdfs)
