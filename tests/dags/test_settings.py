"""`krake_airflow.settings`: the secrets of an Airflow of one machine."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from krake_airflow import settings

from tests.dags.crawls import small_config


@pytest.mark.parametrize("module", ["krake_airflow.run", "krake_airflow.ui"])
def test_airflow_is_not_loaded_before_its_environment_is_set(module: str, tmp_path: Path) -> None:
    """It would make a folder in the user's home, and read its settings there."""
    code = f"import sys, {module}; print(sorted(name for name in sys.modules if name.split('.')[0] == 'airflow'))"
    variables = {
        "HOME": str(tmp_path),
        "PYTHONPATH": f"{settings.PROJECT / 'plugins'}:{settings.PROJECT}",
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True
    )
    assert done.stdout == "[]\n", done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_secret_is_made_once_for_the_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "jwt-secret"
    made = settings._kept_secret(path)
    assert len(bytes.fromhex(made)) == 32
    assert settings._kept_secret(path) == made
    assert settings._kept_secret(tmp_path / "api-secret") != made
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_empty_secret_is_never_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start would take it: everybody could sign a token with it."""

    def full(file: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(settings, "fsync_file", full)
    with pytest.raises(OSError, match="No space left"):
        settings._kept_secret(tmp_path / "jwt-secret")
    assert list(tmp_path.iterdir()) == []


def test_of_two_that_make_it_at_once_both_have_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, others = tmp_path / "jwt-secret", []

    def meanwhile(file: object) -> None:
        monkeypatch.undo()
        others.append(settings._kept_secret(path))

    monkeypatch.setattr(settings, "fsync_file", meanwhile)
    assert [settings._kept_secret(path)] == others == [path.read_text()]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("program", ["run", "ui"])
def test_a_program_loads_no_airflow_before_it_has_set_its_variables(program: str) -> None:
    """Airflow reads AIRFLOW_HOME when it is imported: with another one `make crawl` did not find its own DAG."""
    code = f"import sys, krake_airflow.{program}; sys.exit('airflow' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": f"{settings.PROJECT / 'plugins'}:{settings.PROJECT}"}
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == 0


@pytest.mark.parametrize("program", ["run", "ui"])
@pytest.mark.parametrize("taken", ["", "logs", "configs"])
def test_a_folder_of_airflow_that_cannot_be_written_is_a_plain_sentence(
    program: str,
    taken: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A file is where a folder has to be, which not even root may change."""
    _, config = small_config(tmp_path)
    monkeypatch.setenv(settings.HOME_VARIABLE, str(tmp_path / "home"))
    home = settings.airflow_home(os.environ)
    (home / taken).parent.mkdir(parents=True)
    (home / taken).write_text("")
    monkeypatch.setattr("krake_airflow.ui.signal.signal", lambda *_: None)
    assert import_module(f"krake_airflow.{program}").main(["--config", str(config)]) in (1, 2)
    said = "".join(capfd.readouterr())
    words = f"{home}: Airflow's database and logs cannot be written: name another folder by {settings.HOME_VARIABLE}: "
    assert words in said
    assert "Traceback" not in said
