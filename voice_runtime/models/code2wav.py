"""Code2Wav: codec frames to sound, any number at a time, with the whole past in an explicit state.

Knows no request and no queue. `CodecDecoder` is the network, `Synthesis` the signal processing after it, `Code2Wav`
both for rows of a batch that advance independently.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from torch import Tensor, nn

from voice_runtime.models.causal import ConvNeXtBlock, WindowLayer

RATE_HZ = 24_000
HOP = 300
WINDOW = 1_200
BINS = WINDOW // 2 + 1
STEPS = 4  # spectral frames of 12.5 ms in a codec frame of 50 ms
FRAME_SAMPLES = STEPS * HOP
# A spectral frame takes the pulses 600 samples around its centre, of which the last 300 come with the next one; the
# windows that overlap a sample are complete 600 samples later.
DELAY_SAMPLES = WINDOW // 2 + HOP
PARTS = 5  # harmonic magnitude and phase, noise magnitude, free magnitude and phase
PITCH_WIDTH = 16
PITCH_PAST = 3
PITCH_HIDDEN = 64
MEAN_HZ = 200.0
LOWEST_HZ, HIGHEST_HZ = 50.0, 600.0
HIGHEST_HARMONIC_HZ = 11_000.0
LOUDEST = 7.0
NOISE_FRAMES = 512  # 6.4 s until the noise repeats
NOISE_SEED = 4

Tensors = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Code2WavConfig:
    """Sizes. components: width of a code's vector. window: codec frames that attention sees, the current one too."""

    books: int = 4
    codes: int = 1024
    components: int = 128
    width: int = 256
    heads: int = 4
    window: int = 32
    layers: int = 2
    hidden: int = 384
    blocks: int = 4
    kernel: int = 7


@dataclass(frozen=True, slots=True)
class Spectra:
    """What the network says of F spectral frames, each tensor (rows, F, ...).

    latents: (..., width), before the convolution blocks; head: (..., 5 * 601)
    log_pitch: float64, natural logarithm of the pitch over 200 Hz at the frame's end; voicing: float64, above 0: voiced
    """

    latents: Tensor
    head: Tensor
    log_pitch: Tensor
    voicing: Tensor


class PitchDecoder(nn.Module):
    """Codes to pitch and voicing, in float64 and of few operations.

    The phase is the sum of all pitches since the stream began: float32, which depends a little on how the codes were
    cut, would drift away from itself within minutes.
    """

    def __init__(self, config: Code2WavConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.books * config.codes, PITCH_WIDTH, dtype=torch.float64)
        self.mix = nn.Linear((PITCH_PAST + 1) * PITCH_WIDTH, PITCH_HIDDEN, dtype=torch.float64)
        self.out = nn.Linear(PITCH_HIDDEN, 2 * STEPS, dtype=torch.float64)

    def forward(self, indices: Tensor, past: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """indices: int64 (rows, frames, books); past: (rows, 3, 16). Returns log pitch, voicing (rows, 4 frames), past.

        The first eight columns of a code's vector are a first guess, which the network corrects.
        """
        seen = torch.cat([past, self.embedding(indices).sum(2)], 1)
        around = seen.unfold(1, PITCH_PAST + 1, 1).flatten(2)
        found = seen[:, PITCH_PAST:, : 2 * STEPS] + self.out(torch.tanh(self.mix(around)))
        log_pitch, voicing = found.unflatten(2, (STEPS, 2)).unbind(-1)
        return log_pitch.flatten(1), voicing.flatten(1), seen[:, -PITCH_PAST:]


class CodecDecoder(nn.Module):
    """Code vectors -> causal transformer at 20 Hz -> four latents a frame -> causal ConvNeXt at 80 Hz -> head."""

    def __init__(self, config: Code2WavConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.books * config.codes, config.components)
        self.spread = nn.Linear(config.components, STEPS * config.width)  # the quantiser's own decoding
        self.into = nn.Linear(config.components, config.width)
        self.layers = nn.ModuleList(
            WindowLayer(config.width, config.heads, config.window, config.hidden) for _ in range(config.layers)
        )
        self.correct_norm = nn.LayerNorm(config.width)
        self.correct = nn.Linear(config.width, STEPS * config.width)  # and what the past adds to it
        self.blocks = nn.ModuleList(ConvNeXtBlock(config.width, config.kernel, 0.1) for _ in range(config.blocks))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, PARTS * BINS)
        self.pitch = PitchDecoder(config)

    def init_state(self, rows: int) -> Tensors:
        state = {"pitch": torch.zeros(rows, PITCH_PAST, PITCH_WIDTH, dtype=torch.float64)}
        for index, layer in enumerate(self.layers):
            state[f"keys.{index}"], state[f"values.{index}"] = layer.init_state(rows)
        return state | {f"convs.{index}": block.init_state(rows) for index, block in enumerate(self.blocks)}

    def forward(self, codes: Tensor, state: Tensors) -> tuple[Spectra, Tensors]:
        """codes: int64 (rows, frames, books) in [0, codes). Returns 4 spectral frames for each, and the new state."""
        indices = codes + self.config.codes * torch.arange(self.config.books)
        new: Tensors = {}
        log_pitch, voicing, new["pitch"] = self.pitch(indices, state["pitch"])
        vectors = self.embedding(indices).sum(2)
        x = self.into(vectors)
        for index, layer in enumerate(self.layers):
            x, kept = layer(x, (state[f"keys.{index}"], state[f"values.{index}"]))
            new[f"keys.{index}"], new[f"values.{index}"] = kept
        latents = self.spread(vectors) + self.correct(self.correct_norm(x))
        latents = hidden = latents.unflatten(2, (STEPS, -1)).flatten(1, 2)
        for index, block in enumerate(self.blocks):
            hidden, new[f"convs.{index}"] = block(hidden, state[f"convs.{index}"])
        return Spectra(latents, self.head(self.norm(hidden)), log_pitch, voicing), new


class Synthesis(nn.Module):
    """Source and filter: a pulse train and noise, shaped by the head's spectra, inverse STFT with overlap-add.

    The same model of sound as hibari.dsp, whose decoder is the teacher, but with a state and without look-ahead: the
    pitch is known at the end of each spectral frame, so that a frame's pulses need nothing of the next.

    Source: hibari-tts 0.2.1, hibari/dsp.py (the parts of the spectrum and the band-limited pulse).
    """

    window: Tensor
    noise: Tensor

    def __init__(self) -> None:
        super().__init__()
        window = torch.hann_window(WINDOW, dtype=torch.float64).float()
        self.register_buffer("window", window, persistent=False)
        self.register_buffer("noise", _noise(), persistent=False)

    def init_state(self, rows: int) -> Tensors:
        double = torch.float64
        return {
            "count": torch.zeros(rows, dtype=torch.int64),  # spectral frames so far: the place in the noise
            "phase": torch.zeros(rows, 1, dtype=double),  # of the pulse train, in turns
            "last_hz": torch.zeros(rows, 1, dtype=double),  # pitch where the last frame ended, 0: unvoiced
            "pulses": torch.zeros(rows, WINDOW - HOP),  # that windows to come still need
            "shape": torch.zeros(rows, 1, BINS, dtype=torch.complex64),  # the last frame's, until its pulses are there
            "added": torch.zeros(rows, 1, BINS, dtype=torch.complex64),
            "overlap": torch.zeros(rows, WINDOW // HOP - 1, HOP),  # windows begun, not yet complete
        }

    def forward(self, spectra: Spectra, state: Tensors) -> tuple[Tensor, Tensors]:
        """F spectral frames to float32 (rows, 300 F): sample i of the stream sounds DELAY_SAMPLES later."""
        new: Tensors = {}
        frames = spectra.head.shape[1]
        pulses, new["phase"], new["last_hz"] = pulse_train(spectra, state["phase"], state["last_hz"])
        seen = torch.cat([state["pulses"], pulses], 1)
        shape, added = self._filters(spectra.head, state["count"])
        shape, added = torch.cat([state["shape"], shape], 1), torch.cat([state["added"], added], 1)
        source = torch.fft.rfft(seen.unfold(1, WINDOW, HOP) * self.window / (WINDOW / 4))
        windows = self._windows(source * shape[:, :-1] + added[:, :-1])
        sound = _overlap_added(state["overlap"], windows)
        new |= {"pulses": seen[:, -(WINDOW - HOP) :], "shape": shape[:, -1:], "added": added[:, -1:]}
        new |= {"overlap": sound[:, frames:], "count": state["count"] + frames}
        return sound[:, :frames].flatten(1), new

    def tail(self, state: Tensors) -> Tensor:
        """The last DELAY_SAMPLES of a stream that ends here, float32 (rows, 900)."""
        silence = state["pulses"].new_zeros(len(state["pulses"]), HOP)
        seen = torch.cat([state["pulses"], silence], 1)
        source = torch.fft.rfft(seen * self.window / (WINDOW / 4))[:, None]
        windows = self._windows(source * state["shape"] + state["added"])
        return _overlap_added(state["overlap"], windows).flatten(1)[:, :DELAY_SAMPLES]

    def _filters(self, head: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        """What the pulses' spectrum is multiplied with, and what is added to it: complex64 (rows, F, 601) each."""
        harmonic, turn, noisy, free, angle = head.split(BINS, -1)
        place = (count[:, None] + torch.arange(head.shape[1])) % NOISE_FRAMES
        shape = torch.polar(_magnitude(harmonic), torch.pi * turn.tanh())
        added = torch.polar(_magnitude(free), angle) + self.noise[place] * _magnitude(noisy)
        return shape, added

    def _windows(self, spectrum: Tensor) -> Tensor:
        """Weighted so that four overlapping Hann windows, squared, add up to one."""
        return torch.fft.irfft(spectrum, WINDOW) * (self.window / 1.5)


def pulse_train(spectra: Spectra, phase: Tensor, last_hz: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Pulses float32 (rows, 300 F) whose harmonics below 11 kHz have amplitude one; new phase and last pitch.

    Within a voiced frame the pitch goes linearly from the last frame's to its own.
    """
    voiced = spectra.voicing > 0
    pitch_hz = (MEAN_HZ * spectra.log_pitch.exp()).clamp(LOWEST_HZ, HIGHEST_HZ) * voiced
    before = torch.cat([last_hz, pitch_hz[:, :-1]], 1)
    before = torch.where(before > 0, before, pitch_hz)
    rise = torch.arange(1, HOP + 1, dtype=torch.float64) / HOP
    hz = (before[..., None] + (pitch_hz - before * voiced)[..., None] * rise) * voiced[..., None]
    hz = hz.flatten(1)
    turns = (phase + hz.cumsum(1) / RATE_HZ) % 1.0
    half = torch.pi * turns
    limit = torch.floor(HIGHEST_HARMONIC_HZ / hz.clamp(min=LOWEST_HZ)) + 0.5
    sine = 2 * half.sin()
    peak = sine.abs() <= 1e-6
    pulses = torch.where(peak, limit, (2 * limit * half).sin() / torch.where(peak, 1.0, sine)) - 0.5
    return torch.where(hz > 0, pulses, 0.0).float(), turns[:, -1:], pitch_hz[:, -1:]


def _magnitude(log: Tensor) -> Tensor:
    return log.float().clamp(max=LOUDEST).exp()


def _overlap_added(overlap: Tensor, windows: Tensor) -> Tensor:
    """overlap: (rows, 3, 300), windows: (rows, F, 1200). Returns their sum, (rows, F + 3, 300)."""
    rows, frames, _ = windows.shape
    parts = windows.unflatten(2, (WINDOW // HOP, HOP))
    sound = torch.cat([overlap, overlap.new_zeros(rows, frames, HOP)], 1)
    for part in range(WINDOW // HOP):
        sound = sound + nn.functional.pad(parts[:, :, part], (0, 0, part, WINDOW // HOP - 1 - part))
    return sound


def _noise() -> Tensor:
    """Complex64 (512, 601), real and imaginary parts of variance one: a function of the place in the stream alone."""
    values = np.random.default_rng(NOISE_SEED).standard_normal((NOISE_FRAMES, BINS, 2), dtype=np.float32)
    return torch.view_as_complex(torch.from_numpy(values))


class State:
    """Everything that Code2Wav knows of its rows' past. Its size is fixed."""

    def __init__(self, tensors: Tensors) -> None:
        self.tensors = tensors

    @property
    def rows(self) -> int:
        return len(self.tensors["count"])

    def take(self, rows: Tensor) -> Tensors:
        return {name: tensor[rows] for name, tensor in self.tensors.items()}

    def put(self, rows: Tensor, new: Tensors) -> None:
        for name, tensor in self.tensors.items():
            tensor[rows] = new[name]

    def clear(self, rows: Tensor) -> None:
        for tensor in self.tensors.values():
            tensor[rows] = 0


class Code2Wav:
    """Streaming vocoder for a batch of rows, each with its own past.

    Sample i of a row's outputs, one after the other, is the sound at sample i - delay_samples of its codes. A row's
    output does not depend on the other rows, nor on how its codes were cut (within 1e-5: sums in another order).
    """

    rate_hz = RATE_HZ
    frame_samples = FRAME_SAMPLES
    delay_samples = DELAY_SAMPLES

    def __init__(self, decoder: CodecDecoder) -> None:
        self._decoder = decoder.eval().requires_grad_(False)
        self._synthesis = Synthesis()
        self.books = decoder.config.books
        self.codebook_size = decoder.config.codes

    @classmethod
    def load(cls, path: Path) -> "Code2Wav":
        """Read weights (fp16, computed with in float32) and their sizes from a safetensors file."""
        with safe_open(str(path), "pt") as file:
            config = Code2WavConfig(**json.loads(file.metadata()["config"]))
            weights = {name: file.get_tensor(name) for name in file.keys()}
        decoder = CodecDecoder(config)
        decoder.load_state_dict(weights)  # copies into float32 and, for the pitch, float64
        return cls(decoder)

    def init_state(self, rows: int) -> State:
        """Nothing has been said in any of `rows` rows."""
        return State(self._decoder.init_state(rows) | self._synthesis.init_state(rows))

    @torch.inference_mode()
    def decode(self, state: State, codes: NDArray[np.int64], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
        """codes: (rows, frames, books); mask: (rows,), the rows that advance. Returns (rows, frames * 1200).

        Rows outside the mask: zeros, their state untouched and their codes not looked at.

        Raises ValueError for another shape, or codes out of range.
        """
        rows = self._rows(state, mask)
        self._check(codes, state.rows, mask)
        sound = np.zeros((state.rows, codes.shape[1] * FRAME_SAMPLES), np.float32)
        if len(rows) == 0 or codes.shape[1] == 0:
            return sound
        past = state.take(rows)
        spectra, new = self._decoder(torch.from_numpy(codes[mask]), past)
        heard, after = self._synthesis(spectra, past)
        state.put(rows, new | after)
        sound[mask] = heard.numpy()
        return sound

    @torch.inference_mode()
    def flush(self, state: State, mask: NDArray[np.bool_]) -> NDArray[np.float32]:
        """End the streams of the rows in the mask: (rows, delay_samples), their last sound. Their state is zeroed."""
        rows = self._rows(state, mask)
        sound = np.zeros((state.rows, DELAY_SAMPLES), np.float32)
        sound[mask] = self._synthesis.tail(state.take(rows)).numpy()
        state.clear(rows)
        return sound

    def reset(self, state: State, mask: NDArray[np.bool_]) -> None:
        """Zero the state of the rows in the mask: nothing has been said in them."""
        state.clear(self._rows(state, mask))

    def _rows(self, state: State, mask: NDArray[np.bool_]) -> Tensor:
        if mask.shape != (state.rows,) or mask.dtype != np.bool_:
            raise ValueError(f"mask is {mask.dtype}{mask.shape}, expected bool({state.rows},)")
        return torch.from_numpy(np.flatnonzero(mask))

    def _check(self, codes: NDArray[np.int64], rows: int, mask: NDArray[np.bool_]) -> None:
        if codes.ndim != 3 or codes.shape[::2] != (rows, self.books) or codes.dtype != np.int64:
            raise ValueError(f"codes are {codes.dtype}{codes.shape}, expected int64({rows}, frames, {self.books})")
        used = codes[mask]
        if used.size and not 0 <= used.min() <= used.max() < self.codebook_size:
            raise ValueError(f"codes are {used.min()} to {used.max()}, expected 0 to {self.codebook_size - 1}")


def metadata(config: Code2WavConfig) -> dict[str, str]:
    """What `Code2Wav.load` needs besides the tensors."""
    return {"config": json.dumps(asdict(config))}


def offline(vocoder: Code2Wav, codes: NDArray[np.int64]) -> NDArray[np.float32]:
    """One whole stream at once, int64 (frames, books), without the delay: float32 (frames * 1200,)."""
    state, mask = vocoder.init_state(1), np.ones(1, np.bool_)
    pieces: Sequence[NDArray[np.float32]] = [vocoder.decode(state, codes[None], mask), vocoder.flush(state, mask)]
    return np.concatenate(pieces, 1)[0, DELAY_SAMPLES:]
