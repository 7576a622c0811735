"""A tiny omni thinker with random weights, and what transformers' own code makes of prompts with it.

`cpu_compat.prepare()` must have run: transformers is imported by what is called here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from voice_runtime.runner.embeddings import EmbeddedPrompt, EmbeddedSpan

AUDIO, IMAGE, VIDEO, VISION_START, VISION_END, AUDIO_START, AUDIO_END = range(500, 507)
TEXT = range(1, 480)
PATCH, MEL_BINS, RATE_HZ = 8, 32, 16_000
REPETITION_PENALTY = 1.5  # else random weights say the same token for ever
_WEIGHTS_STD = 0.2  # wide enough that other inputs give other tokens


def save(folder: Path) -> None:
    """Write a thinker of 4 layers, each with 4 experts, an audio tower, and a vision tower with deepstack."""
    from transformers import Qwen3OmniMoeConfig, Qwen3OmniMoeForConditionalGeneration

    torch.manual_seed(0)
    text = {
        "vocab_size": 512,
        "hidden_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": 1024,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10_000.0,
            "mrope_section": [8, 4, 4],
            "mrope_interleaved": True,
        },
        "initializer_range": _WEIGHTS_STD,
    }
    vision = {
        "depth": 4,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_heads": 2,
        "out_hidden_size": 64,
        "num_position_embeddings": 64,
        "deepstack_visual_indexes": [0, 1, 2],
        "patch_size": PATCH,
        "initializer_range": _WEIGHTS_STD,
    }
    audio = {
        "num_mel_bins": MEL_BINS,
        "encoder_layers": 2,
        "encoder_attention_heads": 2,
        "encoder_ffn_dim": 48,
        "d_model": 32,
        "output_dim": 64,
        "downsample_hidden_size": 16,
        "n_window": 50,
        "n_window_infer": 200,
        "initializer_range": _WEIGHTS_STD,
    }
    thinker = {
        "text_config": text,
        "vision_config": vision,
        "audio_config": audio,
        "audio_token_id": AUDIO,
        "image_token_id": IMAGE,
        "video_token_id": VIDEO,
        "vision_start_token_id": VISION_START,
        "vision_end_token_id": VISION_END,
        "audio_start_token_id": AUDIO_START,
        "audio_end_token_id": AUDIO_END,
        "initializer_range": _WEIGHTS_STD,
    }
    config = Qwen3OmniMoeConfig(thinker_config=thinker, enable_audio_output=False)
    Qwen3OmniMoeForConditionalGeneration(config).save_pretrained(folder)


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids and what transformers' model takes beside them. spans: first position and end of each medium."""

    ids: list[int]
    media: dict[str, torch.Tensor]
    spans: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Answer:
    """Greedy tokens, and the logits before each, float, shape (tokens, vocabulary); without the penalty."""

    tokens: list[int]
    logits: NDArray[np.float32]


class Reference:
    """transformers' model: its towers, its positions, its greedy answers."""

    def __init__(self, folder: Path) -> None:
        from transformers import Qwen3OmniMoeForConditionalGeneration

        model = Qwen3OmniMoeForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
        self._thinker: Any = model.thinker.eval().requires_grad_(False)

    def answer(self, prompt: Prompt, tokens: int) -> Answer:
        ids = torch.tensor([prompt.ids])
        out = self._thinker.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            **prompt.media,
            max_new_tokens=tokens,
            do_sample=False,
            repetition_penalty=REPETITION_PENALTY,
            eos_token_id=None,
            pad_token_id=0,
            output_logits=True,
            return_dict_in_generate=True,
        )
        return Answer(out.sequences[0, len(prompt.ids) :].tolist(), torch.cat(out.logits).numpy())

    def embedded(self, prompt: Prompt) -> EmbeddedPrompt:
        """The prompt as our runner takes it: embeddings of the towers, positions of the model."""
        media, ids = prompt.media, torch.tensor([prompt.ids])
        spans = []
        for start, end in prompt.spans:
            if prompt.ids[start] == AUDIO:
                found = self._thinker.get_audio_features(media["input_features"], media["feature_attention_mask"])
                spans.append(EmbeddedSpan(start, found.last_hidden_state))
            else:
                found = self._thinker.get_image_features(media["pixel_values"], media["image_grid_thw"])
                deepstack = torch.stack(list(found.deepstack_features))
                spans.append(EmbeddedSpan(start, found.pooler_output, deepstack))
            assert spans[-1].end == end
        mask = media.get("feature_attention_mask")
        lengths = None if mask is None else mask.sum(dim=1)
        positions, deltas = self._thinker.get_rope_index(
            ids, media.get("image_grid_thw"), attention_mask=torch.ones_like(ids), audio_seqlens=lengths
        )
        return EmbeddedPrompt(spans, positions[:, 0].to(torch.int64), int(deltas[0]))


def words(seed: int, count: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(TEXT.start, TEXT.stop, count)]


def prompt(seed: int, *parts: Sequence[int] | NDArray[np.float32] | Image.Image) -> Prompt:
    """A prompt of token ids, audio (samples at 16 kHz) and images; between random words by `seed`."""
    ids: list[int] = words(seed, 5)
    media: dict[str, torch.Tensor] = {}
    spans: list[tuple[int, int]] = []
    for part in parts:
        match part:
            case Image.Image():
                media |= _image_inputs(part)
                count = int(media["image_grid_thw"].prod()) // 4
                opening, placeholder, closing = VISION_START, IMAGE, VISION_END
            case np.ndarray():
                media |= _audio_inputs(part)
                count = _audio_positions(int(media["feature_attention_mask"].sum()))
                opening, placeholder, closing = AUDIO_START, AUDIO, AUDIO_END
            case _:
                ids += part
                continue
        spans.append((len(ids) + 1, len(ids) + 1 + count))
        ids += [opening, *[placeholder] * count, closing]
    return Prompt([*ids, *words(seed + 1, 4)], media, spans)


def tone(hz: float, seconds: float) -> NDArray[np.float32]:
    """A tone that rises by an octave."""
    at = np.arange(int(seconds * RATE_HZ)) / RATE_HZ
    return np.sin(2 * np.pi * hz * at * (1 + at / seconds / 2)).astype(np.float32)


def picture(colour: str) -> Image.Image:
    image = Image.new("RGB", (64, 48), "white")
    ImageDraw.Draw(image).ellipse((8, 8, 40, 40), fill=colour)
    return image


def _audio_inputs(samples: NDArray[np.float32]) -> dict[str, torch.Tensor]:
    from transformers import WhisperFeatureExtractor

    extractor = WhisperFeatureExtractor(feature_size=MEL_BINS, sampling_rate=RATE_HZ)
    found = extractor([samples], sampling_rate=RATE_HZ, padding=True, truncation=False, return_attention_mask=True)
    return {
        "input_features": torch.tensor(np.asarray(found["input_features"])),
        "feature_attention_mask": torch.tensor(np.asarray(found["attention_mask"]), dtype=torch.int64),
    }


def _audio_positions(frames: int) -> int:
    """Embeddings that the audio tower makes of so many mel frames: 13 of each second, three convolutions of stride 2.

    Source: transformers 5.12.1, models/qwen3_omni_moe, _get_feat_extract_output_lengths.
    """
    rest = frames % 100
    for _ in range(3):
        rest = (rest - 1) // 2 + 1
    return rest + frames // 100 * 13


def _image_inputs(image: Image.Image) -> dict[str, torch.Tensor]:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    processor = Qwen2VLImageProcessorPil(patch_size=PATCH, size={"shortest_edge": 256, "longest_edge": 65_536})
    found = processor(images=[image], return_tensors="pt")
    return {"pixel_values": found["pixel_values"], "image_grid_thw": found["image_grid_thw"]}
