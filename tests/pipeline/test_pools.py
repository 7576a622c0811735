"""Counting compute pools: the count sees a pool that a library starts behind our back."""

import json
import subprocess
import sys

import pytest

from voice_runtime import assets

COUNT = """
import json, sys
from voice_runtime.pipeline import pools
pools.set_to_one_thread()
import numpy, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(sys.argv[2])
options.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
print(json.dumps(pools.count()))
"""


@pytest.mark.parametrize("threads", [1, 3])
def test_onnx_runtimes_threads_are_counted(threads: int) -> None:
    model = str(assets.locate("silero-vad"))
    done = subprocess.run(
        [sys.executable, "-c", COUNT, model, str(threads)], capture_output=True, text=True, check=True
    )
    pools = json.loads(done.stdout)
    assert pools.pop("native") == threads
    assert set(pools.values()) == {1}
    assert any(name.startswith("openblas") for name in pools)
