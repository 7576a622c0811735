"""The converted language model against transformers' own reading of the GGUF file."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGUFReader, dequantize
from safetensors.numpy import load_file

from voice_runtime.assets import locate, thinker_folder
from voice_runtime.sglang_backend import cpu_compat

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def folder() -> Path:
    cpu_compat.prepare()
    return thinker_folder(progress=False)


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture
def one_torch_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_the_chat_template_and_the_special_tokens_survive(folder: Path, tokenizer: Any) -> None:
    prompt = tokenizer.apply_chat_template(QUESTION, add_generation_prompt=True, tokenize=False)
    assert prompt.endswith("<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n")
    assert tokenizer.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"]) == [1, 2]
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (1, 2, 2)
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == 2


def test_text_survives_the_tokenizer_and_digits_stay_single(tokenizer: Any) -> None:
    text = "It's  1234 caf\N{LATIN SMALL LETTER E WITH ACUTE}s,\n\nnot 5! \N{SLIGHTLY SMILING FACE}"
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert {"1", "2", "3", "4", "5"} <= set(tokenizer.convert_ids_to_tokens(ids))


def test_the_model_answers_with_the_capital_of_france_and_stops(
    folder: Path, tokenizer: Any, one_torch_thread: None
) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.dtype == torch.float32
    prompt = tokenizer(
        tokenizer.apply_chat_template(QUESTION, add_generation_prompt=True, tokenize=False), return_tensors="pt"
    )
    answer = model.generate(**prompt, do_sample=False, max_new_tokens=24)[0, prompt["input_ids"].shape[1] :]
    assert tokenizer.decode(answer) == "The capital of France is Paris.<|im_end|>"


def test_every_weight_equals_what_transformers_reads_rounded_to_float16(folder: Path) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    theirs = load_gguf_checkpoint(str(locate("smollm2-gguf")), return_tensors=True, model_to_load=empty)["tensors"]
    ours = load_file(folder / "model.safetensors")
    assert ours.keys() == theirs.keys()
    for name, values in theirs.items():
        np.testing.assert_array_equal(ours[name], np.asarray(values).astype(np.float16), err_msg=name)


def test_rounding_to_float16_loses_less_than_a_hundredth_of_a_quantisation_step() -> None:
    tensor = next(t for t in GGUFReader(locate("smollm2-gguf")).tensors if t.name == "blk.0.ffn_down.weight")
    blocks = dequantize(tensor.data, tensor.tensor_type).reshape(-1, 32)
    steps = np.ptp(blocks, axis=1) / 15
    rounding = np.abs(blocks.astype(np.float16).astype(np.float32) - blocks).max(axis=1)
    assert np.max(rounding[steps > 0] / steps[steps > 0]) < 0.01
