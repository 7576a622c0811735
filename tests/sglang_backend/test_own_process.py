"""Upstream allows one engine a process: what needs one of other settings runs in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "own_process"
FILES = sorted(FOLDER.glob("check_*.py"))


def run(path: Path, which: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", which, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]
    _ran.add(path)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_checks_hold_in_a_process_of_their_own(path: Path) -> None:
    run(path, "not soak")


@pytest.mark.soak
def test_full_counts_hold_in_a_process_of_their_own() -> None:
    run(FOLDER / "check_conformance.py", "soak")


def has_run_whole() -> bool:
    """Whether every file's checks have run in this session."""
    return _ran >= set(FILES)


_ran: set[Path] = set()
