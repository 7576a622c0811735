"""Upstream allows one engine a process: what needs one of other settings runs in a process of its own."""

import subprocess
from concurrent.futures import Future
from pathlib import Path

import pytest

from tests.support import own_process
from tests.support.own_process import FILES, FOLDER


def assert_held(done: "subprocess.CompletedProcess[str]") -> None:
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_checks_hold_in_a_process_of_their_own(
    path: Path, own_processes: "dict[Path, Future[subprocess.CompletedProcess[str]]]"
) -> None:
    assert_held(own_processes[path].result())
    _ran.add(path)


@pytest.mark.soak
def test_full_counts_hold_in_a_process_of_their_own() -> None:
    assert_held(own_process.run(FOLDER / "check_conformance.py", "soak"))


def has_run_whole() -> bool:
    """Whether every file's checks have run in this session."""
    return _ran >= set(FILES)


_ran: set[Path] = set()
