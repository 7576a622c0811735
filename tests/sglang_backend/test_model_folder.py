"""A model folder is read before anything is loaded, and what would run wrongly is refused with the reason."""

import json
from pathlib import Path
from typing import Any

import pytest

from voice_runtime import assets
from voice_runtime.errors import ConfigError, UnsupportedError
from voice_runtime.sglang_backend import model_folder


def write(folder: Path, config: dict[str, Any]) -> Path:
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_the_default_thinker_is_read() -> None:
    assert model_folder.read(assets.thinker_folder()).vocabulary == 49_152


def test_a_multimodal_models_vocabulary_is_its_language_models(tmp_path: Path) -> None:
    inner = {"thinker_config": {"text_config": {"vocab_size": 77}}}
    folder = write(tmp_path, {"architectures": ["Qwen3OmniMoeForConditionalGeneration"], **inner})
    assert model_folder.read(folder).vocabulary == 77


@pytest.mark.parametrize("name", model_folder.DIFFUSION)
def test_a_diffusion_language_model_is_refused_with_the_reason(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsupportedError, match=f"{name} is a diffusion language model"):
        model_folder.read(write(tmp_path, {"architectures": [name]}))


@pytest.mark.parametrize("name", ["LlamaEmbeddingModel", "Qwen2ForRewardModel", "BertForSequenceClassification"])
def test_a_model_that_brings_no_tokens_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsupportedError, match="expected a generative model"):
        model_folder.read(write(tmp_path, {"architectures": [name]}))


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="missing"):
        model_folder.read(tmp_path / "missing")
