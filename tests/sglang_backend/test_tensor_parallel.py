"""Two ranks of a tensor-parallel model draw the same tokens as one, seeded or not, over gloo on a CPU."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.serving import kv_is_whole
from tests.support.tiny_llama import tiny_llama
from voice_runtime.errors import ConfigError
from voice_runtime.sglang_backend.engine import Ranks


def start(folder: Path, rank: int, count: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.support.one_rank", str(folder), str(rank), str(count)]
    # Upstream compiles one function for several ranks, which takes a C++ compiler and half a minute.
    environment = os.environ | {"TORCHDYNAMO_DISABLE": "1"}
    return subprocess.Popen(
        [*command, str(folder / "store")],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def result(process: "subprocess.Popen[str]") -> dict[str, Any]:
    out, error = process.communicate(timeout=240)
    assert process.returncode == 0, error[-4_000:]
    found: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    return found


def test_two_ranks_give_the_tokens_of_one_and_every_page_back(tmp_path: Path) -> None:
    tiny_llama(tmp_path)
    processes = [start(tmp_path, 0, 2), start(tmp_path, 1, 2), start(tmp_path, 0, 1)]
    first, second, alone = (result(process) for process in processes)
    assert first["tokens"] == second["tokens"] == alone["tokens"]
    drawn = [alone["tokens"][f"{number:08d}"] for number in (2, 3, 4)]  # a tiny model's likeliest token may stay one
    assert all(len(set(answer)) > 3 for answer in drawn)
    for rank in (first, second, alone):
        assert kv_is_whole(rank["held"]), rank["held"]


def test_ranks_that_cannot_meet_are_refused() -> None:
    with pytest.raises(ConfigError, match="rank is 2"):
        Ranks(2, 2, Path("store"))
    with pytest.raises(ConfigError, match="for 2 ranks"):
        Ranks(2, 0)
