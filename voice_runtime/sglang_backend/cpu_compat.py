"""What must be set before SGLang or transformers is imported next to a torch without CUDA. Imports neither."""

import os
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
    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _kept.append(library)
