"""SmolLM2 out of its GGUF file: a folder that transformers and SGLang load. Knows no cache and no lock."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from gguf import GGUFReader, dequantize
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

GGUF_CONTROL_TOKEN = 3
END_OF_TURN = "<|im_end|>"

OUTER_NAMES = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
LAYER_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


def convert(gguf: Path, folder: Path, progress: Callable[[int, int], None]) -> None:
    """Write config.json, generation_config.json, tokenizer files and model.safetensors into `folder`, which exists.

    progress: called with (tensors done, tensors in all) after each tensor

    The weights are float16, 269 MB. In 8 answers of 48 tokens, float32 arithmetic on them chose the same tokens as on
    the exact 4-bit values (float32 weights, 538 MB); on bfloat16 weights one answer differed. config.json says
    float32: that is the arithmetic for a CPU, and what transformers takes when it is told nothing.

    transformers' own reader of GGUF files is not used: it needs the package accelerate, takes <|im_start|> for the end
    token, and splits text at digits otherwise than SmolLM2 was trained. The weights are the same to the bit.

    Source: the GGUF v3 specification; transformers 5.12.1, models/llama (names); SmolLM2-135M-Instruct.
    """
    reader = GGUFReader(gguf)
    facts = {name: field.contents() for name, field in reader.fields.items()}
    _write_json(folder / "config.json", _config(facts))
    _write_json(folder / "generation_config.json", _token_ids(facts))
    _tokenizer(facts).save(str(folder / "tokenizer.json"))
    _write_json(folder / "tokenizer_config.json", _tokenizer_config(facts))
    weights = {}
    for name, values in _weights(reader, facts):
        weights[name] = values
        progress(len(weights), len(reader.tensors))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def _weights(reader: GGUFReader, facts: dict[str, object]) -> Iterator[tuple[str, NDArray[np.float16]]]:
    heads = {"attn_q": facts["llama.attention.head_count"], "attn_k": facts["llama.attention.head_count_kv"]}
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type)
        if tensor.name in OUTER_NAMES:
            yield OUTER_NAMES[tensor.name], values.astype(np.float16)
            continue
        _, layer, part, _ = tensor.name.split(".")
        if part in heads:
            values = _halves(values, int(str(heads[part])))
        yield f"model.layers.{layer}.{LAYER_NAMES[part]}.weight", values.astype(np.float16)


def _halves(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Reorder each head's rows from pairs (GGUF's rotary embedding) to two halves (transformers')."""
    pairs = rows.reshape(heads, -1, 2, rows.shape[1])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def _config(facts: dict[str, object]) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float32",
        "attention_bias": False,
        "mlp_bias": False,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "vocab_size": facts["llama.vocab_size"],
        "hidden_size": facts["llama.embedding_length"],
        "intermediate_size": facts["llama.feed_forward_length"],
        "num_hidden_layers": facts["llama.block_count"],
        "num_attention_heads": facts["llama.attention.head_count"],
        "num_key_value_heads": facts["llama.attention.head_count_kv"],
        "head_dim": facts["llama.rope.dimension_count"],
        "max_position_embeddings": facts["llama.context_length"],
        "rms_norm_eps": facts["llama.attention.layer_norm_rms_epsilon"],
        "rope_parameters": {"rope_type": "default", "rope_theta": facts["llama.rope.freq_base"]},
        **_token_ids(facts),
    }


def _token_ids(facts: dict[str, object]) -> dict[str, object]:
    return {
        "bos_token_id": facts["tokenizer.ggml.bos_token_id"],
        "eos_token_id": facts["tokenizer.ggml.eos_token_id"],
        "pad_token_id": facts["tokenizer.ggml.padding_token_id"],
    }


def _tokenizer(facts: dict[str, object]) -> Tokenizer:
    tokens = _strings(facts["tokenizer.ggml.tokens"])
    merges = [tuple(merge.split(" ")) for merge in _strings(facts["tokenizer.ggml.merges"])]
    tokenizer = Tokenizer(BPE({token: i for i, token in enumerate(tokens)}, merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in _control_tokens(facts)])
    return tokenizer


def _tokenizer_config(facts: dict[str, object]) -> dict[str, object]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|im_start|>",
        "eos_token": END_OF_TURN,
        "pad_token": END_OF_TURN,
        "unk_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": facts["llama.context_length"],
        "chat_template": facts["tokenizer.chat_template"],
    }


def _control_tokens(facts: dict[str, object]) -> list[str]:
    tokens = _strings(facts["tokenizer.ggml.tokens"])
    kinds = facts["tokenizer.ggml.token_type"]
    assert isinstance(kinds, list)
    return [token for token, kind in zip(tokens, kinds, strict=True) if kind == GGUF_CONTROL_TOKEN]


def _strings(field: object) -> list[str]:
    assert isinstance(field, list)
    return field


def _write_json(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
