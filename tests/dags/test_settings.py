"""`krake_airflow.settings`: the secrets of an Airflow of one machine."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
from krake_airflow import settings


def test_a_secret_is_made_once_for_the_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "jwt-secret"
    made = settings._kept_secret(path)
    assert len(bytes.fromhex(made)) == 32
    assert settings._kept_secret(path) == made
    assert settings._kept_secret(tmp_path / "api-secret") != made
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_empty_secret_is_never_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next start would take it: everybody could sign a token with it."""

    def full(file: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(settings, "fsync_file", full)
    with pytest.raises(OSError, match="No space left"):
        settings._kept_secret(tmp_path / "jwt-secret")
    assert list(tmp_path.iterdir()) == []


def test_of_two_that_make_it_at_once_both_have_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, others = tmp_path / "jwt-secret", []

    def meanwhile(file: object) -> None:
        monkeypatch.undo()
        others.append(settings._kept_secret(path))

    monkeypatch.setattr(settings, "fsync_file", meanwhile)
    assert [settings._kept_secret(path)] == others == [path.read_text()]
    assert list(tmp_path.iterdir()) == [path]
