"""Checks that need an SGLang engine of other settings: upstream allows one a process, so each file has its own."""

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "sglang_backend" / "own_process"
FILES = sorted(FOLDER.glob("check_*.py"))


def run(path: Path, which: str) -> "subprocess.CompletedProcess[str]":
    """Run the checks of a file that `which`, an expression over markers, selects."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", which, str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
