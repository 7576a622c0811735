"""Upstream allows one engine a process: what needs one of other settings runs in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "own_process"
FILES = sorted(FOLDER.glob("check_*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_checks_hold_in_a_process_of_their_own(path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]
