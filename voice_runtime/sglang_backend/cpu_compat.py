"""What must be set before SGLang or transformers is imported next to a torch without CUDA. Imports neither."""

import os
from pathlib import Path
from typing import Any

_kept: list[Any] = []  # the schema library: its schemas vanish when it is collected


def prepare() -> None:
    """Make the imports work, once per process; child processes need it again.

    PyPI's torchvision is linked against CUDA: next to a CPU torch its operators do not exist, and both SGLang and
    transformers import it. Declaring the two schemas that it registers fakes for is enough; none is ever run here.
    """
    os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")  # else rotary embedding imports vllm
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # else a wrong model path retries the hub for minutes
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import torch

    if torch.version.cuda is not None or _kept:
        return
    library: Any = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _kept.append(library)


def one_interop_thread() -> None:
    """torch's second pool: its default is one thread a core, whatever OMP_NUM_THREADS says."""
    import torch

    if torch.get_num_interop_threads() != 1:
        torch.set_num_interop_threads(1)


def process_group(ranks: int = 1, rank: int = 0, store: Path | None = None) -> None:
    """Set up torch's threads and its process group before SGLang does.

    SGLang would open torch's rendezvous store, a TCP server on every interface that asks nobody who he is. A store in
    memory serves a single process as well, and a file serves several; SGLang takes a group that is there.
    Source: sglang 0.5.15.post1, srt/distributed/parallel_state.py, init_distributed_environment.

    store: a file that is not there yet, the same for all ranks; None for a single one.
    """
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # else gloo listens where the host's name points to
    import torch

    one_interop_thread()
    if ranks > 1 and not torch.cuda.is_available():
        # Without it upstream binds each rank to a NUMA node, and refuses when there are fewer.
        os.environ.setdefault("SGLANG_CPU_OMP_THREADS_BIND", "|".join(str(other) for other in range(ranks)))
    if not torch.distributed.is_initialized():
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        meeting: Any = (
            torch.distributed.HashStore()  # type: ignore[attr-defined]
            if store is None
            else torch.distributed.FileStore(str(store), ranks)  # type: ignore[attr-defined]
        )
        torch.distributed.init_process_group(backend, store=meeting, rank=rank, world_size=ranks)
