"""Turns of an IP: start to start, over all processes that have the file open."""

import errno
import math
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl_lib.errors import StorageError
from crawl_lib.fetch import Turns


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_one_turn_a_delay_over_two_openers(tmp_path, clock):
    with (
        Turns(tmp_path / "t", longest_s=60.0, delay_s=1.0, clock=clock) as one,
        Turns(tmp_path / "t", longest_s=60.0, delay_s=1.0, clock=clock) as other,
    ):
        assert one.reserve("ip 1.2.3.4", 0.5) == 0.0
        assert other.reserve("ip 1.2.3.4", 0.5) == pytest.approx(0.5)
        clock.now += 0.4
        assert one.reserve("ip 1.2.3.4", 0.5) == pytest.approx(0.1)
        assert one.reserve("ip 1.2.3.5", 0.5) == 0.0
        clock.now += 0.11
        assert other.reserve("ip 1.2.3.4", 0.5) == 0.0
        assert one.reserve("ip 1.2.3.4", 0.5) == pytest.approx(0.5)


def test_the_holder_moves_its_turn_both_ways(tmp_path, clock):
    with Turns(tmp_path / "t", longest_s=60.0, delay_s=1.0, clock=clock) as turns:
        turns.reserve("host a", 61.0)
        turns.put("host a", 1.0)
        assert turns.reserve("host a", 1.0) == pytest.approx(1.0)
        turns.put("host a", 5.0)
        assert turns.reserve("host a", 1.0) == pytest.approx(5.0)


def test_turns_outlive_their_process_and_a_reset_holds_all(tmp_path, clock):
    with Turns(tmp_path / "t", longest_s=60.0, delay_s=1.0, clock=clock) as turns:
        turns.reserve("host a", 60.0)
    with Turns(tmp_path / "t", longest_s=60.0, delay_s=1.0, clock=clock) as turns:
        assert turns.reserve("host a", 1.0) == pytest.approx(60.0)
        turns.reset(2.0)
        assert turns.reserve("host a", 1.0) == pytest.approx(2.0)
        assert turns.reserve("host never seen", 1.0) == pytest.approx(2.0)
        clock.now += 2.1
        assert turns.reserve("host a", 1.0) == 0.0


def test_a_table_of_another_boot_is_emptied(tmp_path, clock):
    with Turns(tmp_path / "t", longest_s=60.0, delay_s=1.0, clock=clock) as turns:
        turns.reserve("x", 1e9)
    data = bytearray((tmp_path / "t").read_bytes())
    data[24:30] = b"reboot"
    (tmp_path / "t").write_bytes(data)
    with Turns(tmp_path / "t", longest_s=60.0, delay_s=1.0, clock=clock) as turns:
        assert turns.reserve("x", 1.0) == 0.0


@settings(deadline=None, max_examples=100)
@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.floats(0, 0.7), st.sampled_from([None, 0.1, 3.0])),
        max_size=200,
    )
)
def test_crowding_never_gives_a_turn_too_early(tmp_path_factory, steps):
    """The table has fewer entries than there are names: turns may come later, never sooner."""
    clock = Clock()
    allowed_at: dict[int, float] = {}
    path = tmp_path_factory.mktemp("turns") / "t"
    with Turns(path, longest_s=60.0, delay_s=1.0, clock=clock, entries=16) as turns:
        for name, pause, moved in steps:
            clock.now += pause
            if turns.reserve(str(name), 1.0) == 0.0:
                assert clock.now >= allowed_at.get(name, 0.0)
                allowed_at[name] = clock.now + 1.0
                if moved is not None:
                    turns.put(str(name), moved)
                    allowed_at[name] = clock.now + moved


def test_names_that_share_an_entry_only_move_it_forward(tmp_path, clock):
    with Turns(tmp_path / "t", longest_s=60.0, delay_s=1.0, clock=clock, entries=1) as turns:
        turns.reserve("a", 50.0)
        turns.put("b", 1.0)
        assert turns.reserve("a", 1.0) == pytest.approx(50.0)


DAMAGES = {
    "one byte": st.binary(min_size=1, max_size=1),
    "many": st.binary(min_size=8, max_size=400),
    "ones": st.just(b"\xff" * 200),
    "no numbers": st.just(struct.pack("<Qd", 1, math.nan) * 20),
    "no end": st.just(struct.pack("<Qd", 1, math.inf) * 20),
    "far away": st.floats(1e3, 1e300).map(lambda when: struct.pack("<Qd", 1, when) * 20),
}


@settings(deadline=None, max_examples=200)
@given(
    st.sampled_from(sorted(DAMAGES)).flatmap(DAMAGES.get),
    st.sampled_from([0, 20, 24, 64]) | st.integers(0, 319),
    st.sampled_from([0, 0, 0, 5, -5, -200, -300]),
)
def test_no_damage_of_the_file_holds_anybody_for_longer_than_the_longest_turn(
    tmp_path_factory, damage, place, more
):
    """And a turn that is given after the damage is as long as ever."""
    clock, path = Clock(), tmp_path_factory.mktemp("turns") / "t"
    with Turns(path, longest_s=9.0, delay_s=1.0, clock=clock, entries=16) as turns:
        for number in range(12):
            turns.reserve(str(number), 5.0)
    data = bytearray(path.read_bytes())
    data[place : place + len(damage)] = damage[: len(data) - place]
    path.write_bytes(bytes(data[:more]) if more < 0 else bytes(data) + bytes(more))
    names, end = list("abcd"), clock.now + 9.0 + 4 * 1.0  # they may share an entry
    with Turns(path, longest_s=9.0, delay_s=1.0, clock=clock, entries=16) as turns:
        while names:
            wait_s = turns.reserve(names[0], 1.0)
            assert 0.0 <= wait_s <= 9.0
            clock.now += wait_s
            assert clock.now <= end
            if wait_s == 0.0:
                assert turns.reserve(names.pop(0), 1.0) == 1.0


@pytest.mark.parametrize("until", [math.nan, math.inf, 1e300, 100.0 + 60.0 + 1.0])
def test_an_entry_that_cannot_be_is_one_delay(tmp_path, clock, until):
    """100 is now, and no turn is further away than 60."""
    with Turns(tmp_path / "t", longest_s=60.0, delay_s=1.0, clock=clock, entries=1) as turns:
        turns.reserve("a", 5.0)
        with (tmp_path / "t").open("r+b") as file:
            file.seek(-8, os.SEEK_END)
            file.write(struct.pack("<d", until))
        assert turns.reserve("a", 50.0) == 1.0
        clock.now += 1.0
        assert turns.reserve("a", 50.0) == 0.0


def test_turns_may_be_longer_than_was_said(tmp_path, clock):
    """Else what is written would be damage, and never run out."""
    with Turns(tmp_path / "t", longest_s=1.0, delay_s=1.0, clock=clock) as turns:
        turns.reserve("a", 90.0)
        clock.now += 80.0
        assert turns.reserve("a", 1.0) == pytest.approx(10.0)


def test_processes_share_the_turns(tmp_path):
    """Four processes ask for one turn without end: it is given once."""
    code = (
        "import sys; from pathlib import Path; from crawl_lib.fetch.turns import Turns\n"
        "turns = Turns(Path(sys.argv[1]), longest_s=60.0, delay_s=1.0)\n"
        "print(sum(turns.reserve('ip 9.9.9.9', 1e6) == 0.0 for _ in range(2000)))"
    )
    root = Path(__file__).resolve().parents[2]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "t")],
            stdout=subprocess.PIPE,
            text=True,
            cwd=root,
        )
        for _ in range(4)
    ]
    assert sum(int(process.communicate(timeout=240)[0]) for process in running) == 1


def test_a_full_disk_is_an_error_not_a_signal(tmp_path, monkeypatch):
    """What is written to a mapped file has no room to fail: without it the kernel ends the process."""

    def full(descriptor: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(StorageError, match="turns: No space left on device"):
        Turns(tmp_path / "turns", longest_s=60.0, delay_s=1.0)


def test_an_unusable_path_is_named(tmp_path):
    with pytest.raises(StorageError, match="missing"):
        Turns(tmp_path / "missing" / "t", longest_s=60.0, delay_s=1.0)
