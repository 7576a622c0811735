"""Find the codec: principal components and four residual codebooks for four stacked latent frames; encode the speech.

python -m training.quantise WORK [--wait]: learns WORK/quantiser.npz from the first files (once), then writes
WORK/codes/NNNN.npz for every file of speech; resumable.
"""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.synthesise import POLL_S, Utterance, read_shard

BOOKS = 4
CODES = 1024
STACK = 4
LATENTS = 256
COLUMNS = LATENTS + 2
COMPONENTS = 128
VOICED_HZ = 40.0  # what hibari.dsp takes as voiced
MEAN_HZ = 200.0
# Weights against latents whose standard deviation is 0.8: together the two columns have a tenth of the variance.
PITCH_WEIGHT = 14.0  # times natural logarithm; 0.01 (a sixth of a semitone) counts as 0.14
VOICING_WEIGHT = 4.0
FILES = 5
ROUNDS = 25
SEED = 4
BATCH = 8192


@dataclass(frozen=True, slots=True)
class Quantiser:
    """mean: float32 (1032,); basis: float32 (128, 1032), orthonormal rows; books: float32 (4, 1024, 128)."""

    mean: Tensor
    basis: Tensor
    books: Tensor

    @classmethod
    def load(cls, path: Path) -> "Quantiser":
        stored = np.load(path)
        return cls(*(torch.from_numpy(stored[name]) for name in ("mean", "basis", "books")))

    def save(self, path: Path) -> None:
        np.savez(path, mean=self.mean.numpy(), basis=self.basis.numpy(), books=self.books.numpy())

    def encode(self, frames: Tensor) -> Tensor:
        """Stacked frames (T, 1032) to codes int64 (T, 4)."""
        rest = (frames - self.mean) @ self.basis.T
        codes = []
        for book in self.books:
            codes.append(torch.cat([_nearest(part, book) for part in rest.split(BATCH)]))
            rest = rest - book[codes[-1]]
        return torch.stack(codes, 1)

    def decode(self, codes: Tensor) -> Tensor:
        """Codes int64 (T, 4) to stacked frames (T, 1032)."""
        points = sum(book[codes[:, index]] for index, book in enumerate(self.books))
        return self.mean + points @ self.basis


def stacked(utterance: Utterance) -> Tensor:
    """(T, 1032), T frames of 50 ms: four times latents, weighted log pitch, weighted voicing."""
    f0_hz = torch.from_numpy(utterance.f0_hz)
    voiced = f0_hz > VOICED_HZ
    pitch = torch.where(voiced, (f0_hz.clamp(min=VOICED_HZ) / MEAN_HZ).log(), torch.zeros(()))
    columns = torch.stack([PITCH_WEIGHT * pitch, VOICING_WEIGHT * voiced.float()], 1)
    frames = torch.cat([torch.from_numpy(utterance.latents.astype(np.float32)), columns], 1)
    return frames.reshape(-1, STACK * COLUMNS)


def unstacked(frames: Tensor) -> tuple[Tensor, Tensor]:
    """(T, 1032) to latents (4T, 256) and f0 in Hz (4T,), 0 where unvoiced."""
    rows = frames.reshape(-1, COLUMNS)
    pitch_hz = MEAN_HZ * (rows[:, LATENTS] / PITCH_WEIGHT).exp()
    voiced = rows[:, LATENTS + 1] > 0.5 * VOICING_WEIGHT
    return rows[:, :LATENTS], torch.where(voiced, pitch_hz, torch.zeros(()))


def fit(frames: Tensor) -> Quantiser:
    generator = torch.Generator().manual_seed(SEED)
    mean = frames.mean(0)
    centred = frames - mean
    _, vectors = torch.linalg.eigh((centred.T @ centred / len(centred)).double())
    basis = vectors[:, -COMPONENTS:].flip(1).T.float().contiguous()
    rest = centred @ basis.T
    print(f"{len(frames)} frames; components keep {rest.square().sum() / centred.square().sum():.3f}", flush=True)
    books = []
    for index in range(BOOKS):
        book = _k_means(rest, generator)
        rest = rest - book[torch.cat([_nearest(part, book) for part in rest.split(BATCH)])]
        books.append(book)
        print(f"book {index}: {rest.square().sum() / centred.square().sum():.3f} of the variance left", flush=True)
    return Quantiser(mean, basis, torch.stack(books))


def _nearest(points: Tensor, book: Tensor) -> Tensor:
    return (book.square().sum(1) - 2 * points @ book.T).argmin(1)


def _k_means(points: Tensor, generator: torch.Generator) -> Tensor:
    """Lloyd's algorithm; a centre that nobody is near moves to a random point."""
    book = points[torch.randperm(len(points), generator=generator)[:CODES]].clone()
    for _ in range(ROUNDS):
        nearest = torch.cat([_nearest(part, book) for part in points.split(BATCH)])
        sums = torch.zeros_like(book).index_add_(0, nearest, points)
        counts = torch.bincount(nearest, minlength=CODES)
        empty = (counts == 0).nonzero().flatten()
        book = sums / counts.clamp(min=1)[:, None]
        book[empty] = points[torch.randint(len(points), (len(empty),), generator=generator)]
    return book


def write_codes(quantiser: Quantiser, source: Path, target: Path) -> None:
    """phoneme_counts, phonemes, slots as in the speech file; codes int16 (frames, 4)."""
    utterances = list(read_shard(source))
    unfinished = target.with_suffix(".part")
    with unfinished.open("wb") as file:
        np.savez(
            file,
            phoneme_counts=np.array([len(item.phonemes) for item in utterances]),
            phonemes=np.concatenate([item.phonemes for item in utterances]),
            slots=np.concatenate([item.slots for item in utterances]),
            codes=_codes(quantiser, utterances),
        )
    unfinished.rename(target)


def _codes(quantiser: Quantiser, utterances: list[Utterance]) -> NDArray[np.int16]:
    return quantiser.encode(torch.cat([stacked(item) for item in utterances])).numpy().astype(np.int16)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("work", type=Path)
    arguments.add_argument("--files", type=int, default=FILES, help="of speech to learn from")
    arguments.add_argument("--wait", action="store_true", help="for speech that is still being made")
    options = arguments.parse_args()
    torch.set_num_threads(1)
    speech, learnt = options.work / "speech", options.work / "quantiser.npz"
    while options.wait and not learnt.exists() and len(list(speech.glob("*.npz"))) < options.files:
        time.sleep(POLL_S)
    if not learnt.exists():
        paths = sorted(speech.glob("*.npz"))[: options.files]
        fit(torch.cat([stacked(item) for path in paths for item in read_shard(path)])).save(learnt)
    (options.work / "codes").mkdir(exist_ok=True)
    encode_all(options.work, options.wait)


def encode_all(work: Path, wait: bool) -> None:
    quantiser = Quantiser.load(work / "quantiser.npz")
    while True:
        for source in sorted((work / "speech").glob("*.npz")):
            target = work / "codes" / source.name
            if not target.exists():
                write_codes(quantiser, source, target)
                print(f"codes of {source.name}", flush=True)
        if not wait:
            return
        time.sleep(POLL_S)


if __name__ == "__main__":
    main()
