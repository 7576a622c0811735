"""Hibari as the teacher: its phonemes, durations, decoder latents and head, which the package itself does not return.

Source: hibari-tts 0.2.1, hibari/assets/hibari.onnx (node names) and hibari/tts.py.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from hibari import Hibari, dsp
from numpy.typing import NDArray
from torch import Tensor, nn

from voice_runtime import assets
from voice_runtime.models.hibari import AUDIBLE, VOICE

WIDTH = 256
KERNEL = 7
BINS = 601
LATENT = "/dec.5/Add_1_output_0"
DURATIONS = "/Clip_output_0"
HEAD = ("lh", "theta", "ln", "lr", "phi")
FIRST_BLOCK = 6
LEAD_SAMPLES = 480  # 20 ms before the first audible sample, as voice_runtime.models.hibari keeps
TAIL_SAMPLES = 4_800  # 200 ms after the last


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence as the teacher speaks it, silence at both ends cut.

    phonemes: int64 (P,), from the package's vocabulary, 0 at both ends
    slots: int64 (P,), length of each phoneme in slots of 25 ms; their sum is even
    latents: float32 (F, 256), after decoder block 5, 80 Hz; F is twice the sum of slots and a multiple of 4
    f0_hz: float32 (F,), below 40 where unvoiced
    head: float32 (F, 3005), lh, theta, ln, lr, phi
    """

    phonemes: NDArray[np.int64]
    slots: NDArray[np.int64]
    latents: NDArray[np.float32]
    f0_hz: NDArray[np.float32]
    head: NDArray[np.float32]


class Teacher:
    """The int8 model on one thread, with two inner values as further outputs."""

    def __init__(self) -> None:
        model = onnx.load(str(assets.locate("hibari/hibari.onnx")))
        for name in (LATENT, DURATIONS):
            model.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        self.voice = Hibari(voice=VOICE, threads=1)

    def phonemes(self, text: str) -> list[str]:
        """Phoneme strings, one per sentence."""
        strings: list[str] = self.voice.phonemize(text)
        return strings

    def speak(self, phonemes: str) -> Sentence:
        ids = np.asarray(self.voice.ids(phonemes), np.int64)
        outputs = [*HEAD, "f0", LATENT, DURATIONS]
        values = self._session.run(outputs, {"ids": ids[None], "speed": np.ones(1, np.float32)})
        *head, f0_hz, latents = (value[0] for value in values[:-1])
        sound = dsp.synth(*head, f0_hz, np.random.default_rng(0))
        first, frames, slots = trim(sound, values[-1].reshape(-1).astype(np.int64), len(f0_hz))
        kept = slice(first, first + frames)
        stacked = np.concatenate(head).T
        return Sentence(ids, slots, latents.T[kept], f0_hz[kept], stacked[kept])

    @cached_property
    def decoder(self) -> "TeacherDecoder":
        """Blocks 6 and 7 and the head, dequantised."""
        decoder = TeacherDecoder()
        decoder.load_state_dict(_decoder_weights(), strict=True)
        return decoder.eval().requires_grad_(False)


def trim(sound: NDArray[np.float32], slots: NDArray[np.int64], frames: int) -> tuple[int, int, NDArray[np.int64]]:
    """Return (first frame kept, frames kept, slots kept of each phoneme). The pads at both ends keep a slot or more."""
    audible = np.flatnonzero(np.abs(sound) > AUDIBLE)
    start, end = (0, len(sound)) if len(audible) == 0 else (audible[0] - LEAD_SAMPLES, audible[-1] + TAIL_SAMPLES)
    lead = int(np.clip(start // (2 * dsp.HOP), 0, slots[0] - 1))
    kept = slots.copy()
    kept[0] -= lead
    surplus = int(slots.sum() - max(-(-end // (2 * dsp.HOP)), 0))
    kept[-1] -= int(np.clip(surplus, 0, slots[-1] - 1))
    if kept.sum() % 2:  # whole frames of 50 ms
        kept[-1] += 1 if 2 * (lead + kept.sum() + 1) <= frames else -1
    if kept[-1] < 1:
        kept[-1] = 1
        kept[0] += -1 if kept[0] > 1 else 1
        lead += int(slots[0] - lead - kept[0])
    return 2 * lead, int(2 * kept.sum()), kept


class Block(nn.Module):
    """ConvNeXt, symmetric: (batch, frames, 256) to the same."""

    def __init__(self) -> None:
        super().__init__()
        self.dw = nn.Conv1d(WIDTH, WIDTH, KERNEL, padding=KERNEL // 2, groups=WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.pw1 = nn.Linear(WIDTH, 3 * WIDTH)
        self.pw2 = nn.Linear(3 * WIDTH, WIDTH)
        self.gamma = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.norm(self.dw(x.mT).mT)
        return x + self.gamma * self.pw2(nn.functional.gelu(self.pw1(hidden)))


class TeacherDecoder(nn.Module):
    """Latents after block 5, (batch, frames, 256), to the head's values (batch, frames, 3005)."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, len(HEAD) * BINS)

    def forward(self, latents: Tensor) -> Tensor:
        for block in self.blocks:
            latents = block(latents)
        return self.head(self.norm(latents))


def _decoder_weights() -> dict[str, Tensor]:
    model = onnx.load(str(assets.locate("hibari/hibari.onnx")))
    found = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    weights: dict[str, Any] = {}
    for block in range(2):
        source, target = f"dec.{FIRST_BLOCK + block}", f"blocks.{block}"
        for name in ("dw.weight", "dw.bias", "norm.weight", "norm.bias", "pw1.bias", "pw2.bias", "gamma"):
            weights[f"{target}.{name}"] = found[f"m.{source}.{name}"]
        for name in ("pw1", "pw2"):
            weights[f"{target}.{name}.weight"] = _dequantised(found, f"/{source}/{name}")
    weights |= {f"norm.{name}": found[f"m.dec_norm.{name}"] for name in ("weight", "bias")}
    weights |= {"head.weight": _dequantised(found, "/head"), "head.bias": found["m.head.bias"]}
    return {name: torch.from_numpy(np.array(value, np.float32)) for name, value in weights.items()}


def _dequantised(found: dict[str, NDArray[Any]], name: str) -> NDArray[np.float32]:
    """int8 weight (in, out) with one scale and zero point, to float32 (out, in)."""
    stem = f"{name}/Transpose_output_0"
    shifted = found[f"{stem}_quantized"].astype(np.float32) - np.float32(found[f"{stem}_zero_point"])
    values: NDArray[np.float32] = (shifted * found[f"{stem}_scale"]).T
    return values
