"""No fsync in these tests: it guards against a power loss, which no test can cut, and costs most of their time."""

import os

import pytest


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
