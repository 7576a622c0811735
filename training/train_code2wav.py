"""Train Code2Wav: the quantiser's and the teacher's weights to begin with, made causal by distillation.

python -m training.train_code2wav WORK [--steps N]: goes on from WORK/code2wav/last.pt; speech added since is used.
"""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from training.loop import REPORT_STEPS, SAVE_S, SEED, optimiser_of, rate, resume, save, set_rate
from training.quantise import COLUMNS, LATENTS, PITCH_WEIGHT, STACK, VOICED_HZ, VOICING_WEIGHT, Quantiser
from training.synthesise import Utterance, read_shard
from training.teacher import Teacher, TeacherDecoder
from training.windows import read_codes
from voice_runtime.models.code2wav import (
    BINS,
    MEAN_HZ,
    STEPS,
    Code2WavConfig,
    CodecDecoder,
    Spectra,
    Synthesis,
)

PEAK_RATE = 6e-4
ROWS = 8
FRAMES = 40  # codec frames in an example
MARGIN = 2  # more codec frames on both sides, which the teacher's symmetric convolutions see
UNSCORED = 6  # codec frames at the beginning of an example: their past is missing
QUIET = -5.0  # log magnitude below which differences count less: -100 dB of full scale
LOGIT_SCALE = 8.0
RESOLUTIONS = (512, 1024, 2048)
VALIDATION_FILE = "0000.npz"
RELOAD_S = 180.0


@dataclass(frozen=True, slots=True)
class Sample:
    """latents: float32 (rows, 4 (T + 2 MARGIN), 256); codes: int64 (rows, T, 4)

    log_pitch, voiced: float64 and bool (rows, 4 T), at frame ends and in frames
    """

    latents: Tensor
    codes: Tensor
    log_pitch: Tensor
    voiced: Tensor


class Corpus:
    """Speech and its codes, in memory: 166 MB an hour."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._read: dict[str, list[tuple[Utterance, NDArray[np.int64]]]] = {}
        self.refresh()

    def refresh(self) -> None:
        for path in sorted((self._work / "codes").glob("*.npz")):
            if path.name not in self._read:
                pairs = zip(read_shard(self._work / "speech" / path.name), read_codes(path), strict=True)
                long = [(speech, coded.codes) for speech, coded in pairs if len(coded.codes) >= FRAMES + 2 * MARGIN]
                self._read[path.name] = long

    def sample(self, rng: np.random.Generator, validation: bool = False) -> Sample:
        names = [name for name in self._read if (name == VALIDATION_FILE) == validation]
        items = [item for name in names for item in self._read[name]]
        rows = [_cut(items[i][0], items[i][1], rng) for i in rng.integers(len(items), size=ROWS)]
        return Sample(*(torch.stack(column) for column in zip(*rows, strict=True)))


def _cut(speech: Utterance, codes: NDArray[np.int64], rng: np.random.Generator) -> tuple[Tensor, ...]:
    first = int(rng.integers(MARGIN, len(codes) - FRAMES - MARGIN + 1))
    wide = slice(STACK * (first - MARGIN), STACK * (first + FRAMES + MARGIN))
    log_pitch, voiced = pitch_targets(torch.from_numpy(speech.f0_hz))
    inner = slice(STACK * first, STACK * (first + FRAMES))
    latents = torch.from_numpy(speech.latents[wide].astype(np.float32))
    return latents, torch.from_numpy(codes[first : first + FRAMES]), log_pitch[inner], voiced[inner]


def pitch_targets(f0_hz: Tensor) -> tuple[Tensor, Tensor]:
    """Pitch at the end of each frame (between it and the next; its own beside an unvoiced one), and voicing."""
    f0_hz = f0_hz.double()
    following = torch.cat([f0_hz[1:], f0_hz[-1:]])
    voiced = f0_hz > VOICED_HZ
    at_end = torch.where(following > VOICED_HZ, (f0_hz + following) / 2, f0_hz)
    return (at_end.clamp(min=VOICED_HZ) / MEAN_HZ).log(), voiced


def initialise(decoder: CodecDecoder, quantiser: Quantiser, teacher: TeacherDecoder) -> None:
    """Begin as the quantiser's decoding followed by the teacher's last blocks without the future."""
    rows = quantiser.basis.view(-1, STACK, COLUMNS)
    mean = quantiser.mean.view(STACK, COLUMNS)
    with torch.no_grad():
        decoder.embedding.weight.copy_(quantiser.books.flatten(0, 1))
        decoder.spread.weight.copy_(rows[:, :, :LATENTS].flatten(1).T)
        decoder.spread.bias.copy_(mean[:, :LATENTS].flatten())
        decoder.correct.weight.zero_()
        decoder.correct.bias.zero_()
        for block, source in zip(decoder.blocks[-2:], teacher.blocks, strict=True):
            kernel = source.dw.weight
            reach = kernel.shape[-1] // 2
            causal = functional.pad(kernel[..., : reach + 1], (reach, 0))
            causal[..., -1] += kernel[..., reach + 1 :].sum(-1)
            block.conv.conv.weight.copy_(causal)
            block.conv.conv.bias.copy_(source.dw.bias)
            block.norm.load_state_dict(source.norm.state_dict())
            block.up.load_state_dict(source.pw1.state_dict())
            block.down.load_state_dict(source.pw2.state_dict())
            block.gamma.copy_(source.gamma)
        decoder.norm.load_state_dict(teacher.norm.state_dict())
        decoder.head.load_state_dict(teacher.head.state_dict())
        _initialise_pitch(decoder, quantiser)


def _initialise_pitch(decoder: CodecDecoder, quantiser: Quantiser) -> None:
    """The first columns are what the quantiser itself decodes: log pitch and a logit of voicing, for each step."""
    scale = torch.tensor([1 / PITCH_WEIGHT, LOGIT_SCALE / VOICING_WEIGHT])
    shift = torch.tensor([0.0, -LOGIT_SCALE / 2])
    columns = quantiser.basis.view(-1, STACK, COLUMNS)[:, :, LATENTS:] * scale
    mean = quantiser.mean.view(STACK, COLUMNS)[:, LATENTS:] * scale + shift
    decoder.pitch.embedding.weight.normal_(0, 0.3)
    decoder.pitch.embedding.weight[:, : 2 * STEPS] = (
        quantiser.books.flatten(0, 1).double() @ columns.flatten(1).double()
    )
    decoder.pitch.out.weight.zero_()
    decoder.pitch.out.bias.copy_(mean.flatten())


def losses(decoder: CodecDecoder, teacher: TeacherDecoder, synthesis: Synthesis, sample: Sample) -> dict[str, Tensor]:
    margin, skipped = STEPS * MARGIN, STEPS * UNSCORED
    with torch.no_grad():
        wanted = teacher(sample.latents).float()[:, margin:-margin]
    found, _ = decoder(sample.codes, decoder.init_state(len(sample.codes)))
    head = found.head.float()
    latents = sample.latents[:, margin:-margin]
    parts = {"latents": functional.mse_loss(found.latents.float()[:, skipped:], latents[:, skipped:])}
    parts |= head_losses(head[:, skipped:], wanted[:, skipped:])
    voiced = sample.voiced[:, skipped:]
    error = (found.log_pitch - sample.log_pitch)[:, skipped:][voiced]
    parts["pitch"] = (error / 0.05).abs().clamp(max=10).mean().float()
    parts["voicing"] = functional.binary_cross_entropy_with_logits(found.voicing[:, skipped:], voiced.double()).float()
    given = sample.log_pitch, torch.where(sample.voiced, 1.0, -1.0).double()
    sounds = [_sound(synthesis, Spectra(latents, values, *given), len(head)) for values in (head, wanted)]
    parts["spectra"] = spectral_loss(*sounds)
    return parts


def _sound(synthesis: Synthesis, spectra: Spectra, rows: int) -> Tensor:
    sound, _ = synthesis(spectra, synthesis.init_state(rows))
    return sound[:, 1200 * UNSCORED :]


def head_losses(found: Tensor, wanted: Tensor) -> dict[str, Tensor]:
    """Differences of log magnitudes, small ones counting less when quiet; of phases, in proportion to loudness."""
    harmonic, turn, noisy, free, angle = found.split(BINS, -1)
    harmonic_, turn_, noisy_, free_, angle_ = wanted.split(BINS, -1)
    pairs = ((harmonic, harmonic_), (noisy, noisy_), (free, free_))
    magnitude = sum((_loud(a) - _loud(b)).abs().mean() for a, b in pairs)
    turned = (1 - (torch.pi * (turn.tanh() - turn_.tanh())).cos()) * _loud(harmonic_)
    angled = (1 - (angle - angle_).cos()) * _loud(free_)
    return {"magnitude": magnitude, "phase": turned.mean() + angled.mean()}


def _loud(log: Tensor) -> Tensor:
    return functional.softplus(log.clamp(-20, 7) - QUIET)


def spectral_loss(found: Tensor, wanted: Tensor) -> Tensor:
    """L1 of log magnitudes plus spectral convergence, over three resolutions."""
    total = found.new_zeros(())
    for size in RESOLUTIONS:
        window = torch.hann_window(size)
        a, b = (
            torch.stft(sound, size, size // 4, window=window, return_complex=True).abs().clamp(min=1e-4)
            for sound in (found, wanted)
        )
        total = total + (a.log() - b.log()).abs().mean() + (a - b).norm() / b.norm()
    return total / len(RESOLUTIONS)


WEIGHTS = {"latents": 1.0, "magnitude": 1.0, "phase": 1.0, "pitch": 0.5, "voicing": 1.0, "spectra": 1.0}


def total(parts: dict[str, Tensor]) -> Tensor:
    return torch.stack([WEIGHTS[name] * value for name, value in parts.items()]).sum()


def train(work: Path, steps: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    teacher, synthesis, corpus = Teacher().decoder, Synthesis(), Corpus(work)
    decoder = CodecDecoder(Code2WavConfig())
    initialise(decoder, Quantiser.load(work / "quantiser.npz"), teacher)
    optimiser, last = optimiser_of(decoder), work / "code2wav" / "last.pt"
    step = resume(last, decoder, optimiser)
    print(f"{sum(p.numel() for p in decoder.parameters()):,} parameters, step {step}", flush=True)
    held_out = [corpus.sample(np.random.default_rng(i), validation=True) for i in range(4)]
    _validate(step, decoder, [losses(decoder, teacher, synthesis, sample) for sample in held_out])
    saved = refreshed = time.monotonic()
    recent: list[dict[str, Tensor]] = []
    while step < steps:
        set_rate(optimiser, rate(step, steps, PEAK_RATE))
        sample = corpus.sample(np.random.default_rng((SEED, step)))
        with torch.autocast("cpu", torch.bfloat16):
            parts = losses(decoder, teacher, synthesis, sample)
        optimiser.zero_grad()
        total(parts).backward()
        torch.nn.utils.clip_grad_norm_(decoder.parameters(), 1.0)
        optimiser.step()
        recent.append({name: value.detach() for name, value in parts.items()})
        step += 1
        if step % REPORT_STEPS == 0:
            _report(f"step {step} of {steps}", recent)
            recent = []
        if time.monotonic() - refreshed > RELOAD_S:
            corpus.refresh()
            refreshed = time.monotonic()
        if time.monotonic() - saved > SAVE_S or step == steps:
            save(last, decoder, optimiser, step)
            with torch.inference_mode():
                _validate(step, decoder, [losses(decoder, teacher, synthesis, sample) for sample in held_out])
            saved = time.monotonic()


def _validate(step: int, decoder: CodecDecoder, found: list[dict[str, Tensor]]) -> None:
    _report(f"validation at {step}", found)


def _report(what: str, found: list[dict[str, Tensor]]) -> None:
    means = {name: float(torch.stack([parts[name] for parts in found]).mean()) for name in found[0]}
    print(f"{time.strftime('%H:%M:%S')} {what}: " + ", ".join(f"{n} {v:.4f}" for n, v in means.items()), flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("work", type=Path)
    arguments.add_argument("--steps", type=int, default=5_000)
    options = arguments.parse_args()
    train(options.work, options.steps)


if __name__ == "__main__":
    main()
