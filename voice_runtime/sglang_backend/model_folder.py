"""What a model folder says of itself, before anything of it is loaded. Imports nothing of upstream."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from voice_runtime.errors import ConfigError, UnsupportedError

# Upstream would run these as if they were autoregressive: their loop is another one, which is not turned here.
DIFFUSION = ("LLaDA2MoeModelLM", "SDARForCausalLM", "SDARMoeForCausalLM")
GENERATIVE = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel", "LanguageModel")


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """vocabulary: token ids are 0 to that, exclusive; None when the folder does not say."""

    vocabulary: int | None


def read(folder: Path) -> ModelFolder:
    """Read config.json.

    Raises:
        ConfigError: the folder is not there, or is no Hugging Face folder.
        UnsupportedError: its model does not generate token by token.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise ConfigError(f"{path} is not there, expected a Hugging Face model folder")
    config: dict[str, Any] = json.loads(path.read_text())
    architectures = config.get("architectures") or []
    for name in architectures:
        if name in DIFFUSION:
            raise UnsupportedError(
                f"{name} is a diffusion language model, expected an autoregressive one: it denoises blocks of tokens, "
                "and upstream's loop for that is not turned here"
            )
    if not any(name.endswith(GENERATIVE) for name in architectures):
        raise UnsupportedError(
            f"architectures are {architectures}, expected a generative model (…{', …'.join(GENERATIVE)}): embedding, "
            "reward and classification models bring no tokens"
        )
    return ModelFolder(config.get("vocab_size") or _text_config(config).get("vocab_size"))


def _text_config(config: dict[str, Any]) -> dict[str, Any]:
    """The language model's part of a multimodal model's configuration."""
    inner: dict[str, Any] = config.get("thinker_config", config).get("text_config", {})
    return inner
