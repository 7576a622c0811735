"""The compute pools of a process: set to one thread before their libraries load, and counted afterwards.

Imports no library that has a pool.
"""

import os
import sys
import threading
from pathlib import Path

# Each library reads its variable when it is loaded.
_ONE_THREAD = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "RAYON_NUM_THREADS",
)


def set_to_one_thread() -> None:
    """Call before numpy, torch or onnxruntime is imported. What the user's shell says is for other programs."""
    for name in _ONE_THREAD:
        os.environ[name] = "1"


def count() -> dict[str, int]:
    """Threads of every pool that is loaded: the calling thread is counted as one of each, so 1 means no pool.

    "native" is different: threads that a library has started without giving them a name of their own, on top of the
    calling one; ONNX Runtime's pools are such.
    """
    from threadpoolctl import threadpool_info

    pools = {f"{pool['internal_api']}:{Path(pool['filepath']).name}": pool["num_threads"] for pool in threadpool_info()}
    if (torch := sys.modules.get("torch")) is not None:
        pools["torch"] = torch.get_num_threads()
        pools["torch_interop"] = torch.get_num_interop_threads()
    # Python's own threads come and go meanwhile: the fewest of a few looks is what stays.
    pools["native"] = 1 + min(_foreign_threads() for _ in range(5))
    return pools


def _foreign_threads() -> int:
    """Threads that have the process's own name and are not Python's: of libraries that do not name theirs."""
    own = Path("/proc/self/comm").read_text()
    unnamed = {int(task.name) for task in Path("/proc/self/task").iterdir() if (task / "comm").read_text() == own}
    return len(unnamed - {thread.native_id for thread in threading.enumerate()})
