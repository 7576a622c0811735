"""The folder from which upstream loads a codec language model. Imports nothing of upstream."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a process without an engine loads no torch
    from voice_runtime.runner.codec_lm import CodecLMConfig

ARCHITECTURE = "CodecLanguageModel"  # the class in codec_lm
MOST_POSITIONS = 4_096  # of one batch
WEIGHTS = "lm."  # what the names of the network's tensors begin with; other names in the file are another model's


def codec_folder(folder: Path, weights: Path, sizes: CodecLMConfig) -> Path:
    """Fill `folder` with config.json and a link to the safetensors file, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    config, link = (folder / f".{os.getpid()}.{part}" for part in ("config", "link"))
    config.write_text(json.dumps(configuration(sizes)))
    config.replace(folder / "config.json")
    link.symlink_to(weights.resolve())
    link.replace(folder / "model.safetensors")
    return folder


def configuration(sizes: CodecLMConfig) -> dict[str, Any]:
    """What config.json says: a Llama of the same shape, for upstream's KV pool, and the network's own sizes.

    The network reads its own alone: upstream rounds some of Llama's up for its kernels.
    """
    return {
        "architectures": [ARCHITECTURE],
        "model_type": "llama",
        "hidden_size": sizes.width,
        "intermediate_size": sizes.hidden,
        "num_attention_heads": sizes.heads,
        "num_hidden_layers": sizes.layers,
        "vocab_size": sizes.codes,
        "max_position_embeddings": MOST_POSITIONS,
        "eos_token_id": None,  # Llama's own would end the speech at that code
        "codec": asdict(sizes),
    }
