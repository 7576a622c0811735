"""Train the talker on encoded speech.

python -m training.train_talker WORK [--steps N]: goes on from WORK/talker/last.pt; speech that was added since is used.
"""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from training.loop import REPORT_STEPS, SAVE_S, SEED, optimiser_of, rate, resume, save, set_rate
from training.windows import Batch, Spoken, collate, read_codes, window
from voice_runtime.models.talker import Talker, TalkerConfig

PEAK_RATE = 1.2e-3
FRAMES = 2_000  # in a batch, padding included
DURATION_WEIGHT = 0.5
VALIDATION_FILE = "0000.npz"  # its utterances are never learnt
VALIDATION_BATCHES = 6
RELOAD_S = 120.0


@dataclass(frozen=True, slots=True)
class Losses:
    """books: cross-entropy in nats by book, float32 (books,); duration: mean squared error of log slots."""

    books: Tensor
    duration: Tensor

    @property
    def total(self) -> Tensor:
        return self.books.sum() + DURATION_WEIGHT * self.duration


def losses(talker: Talker, batch: Batch) -> Losses:
    encodings = talker.front.encode(batch.ids, batch.keep)
    fresh = batch.durations > 0
    error = talker.front.log_slots(encodings)[fresh].float() - batch.durations[fresh].log()
    spread = encodings.flatten(0, 1)[batch.slots]
    conditioning = talker.front.conditioning(spread, batch.features)
    hidden = talker.lm.states(talker.lm.inputs(conditioning, batch.previous))[batch.scored]
    codes = batch.codes[batch.scored]
    books = [
        functional.cross_entropy(talker.lm.book_logits(hidden, codes[:, :book]).float(), codes[:, book])
        for book in range(codes.shape[1])
    ]
    return Losses(torch.stack(books), error.square().mean())


class Corpus:
    """The encoded utterances, all in memory (a byte a frame and book), grouped into batches of like lengths."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[str, list[Spoken]] = {}
        self.refresh()

    def refresh(self) -> None:
        for path in sorted(self._folder.glob("*.npz")):
            if path.name not in self._read:
                self._read[path.name] = [item for item in read_codes(path) if len(item.codes) >= 8]

    @property
    def hours(self) -> float:
        return sum(len(item.codes) for item in self._training()) / (20 * 3600)

    def _training(self) -> list[Spoken]:
        return [item for name, items in self._read.items() if name != VALIDATION_FILE for item in items]

    def batch(self, config: TalkerConfig, rng: np.random.Generator) -> Batch:
        """Draw windows, then keep those that are about as long as one of them: little padding."""
        items = self._training()
        drawn = [window(items[i], config, rng) for i in rng.integers(len(items), size=96)]
        drawn.sort(key=lambda item: len(item.codes))
        first = int(rng.integers(len(drawn)))
        chosen = drawn[first : first + 1]
        for item in [*drawn[first + 1 :], *reversed(drawn[:first])]:
            longest = max(len(item.codes), *(len(other.codes) for other in chosen))
            if longest * (len(chosen) + 1) > FRAMES:
                break
            chosen.append(item)
        return collate(chosen, config, rng)

    def validation(self, config: TalkerConfig) -> list[Batch]:
        rng = np.random.default_rng(SEED)
        items = self._read[VALIDATION_FILE]
        windows = sorted((window(item, config, rng) for item in items), key=lambda item: len(item.codes))
        groups = np.array_split(np.arange(len(windows)), 16)[:: 16 // VALIDATION_BATCHES]
        return [collate([windows[i] for i in group], config, None) for group in groups]


@torch.inference_mode()
def validate(talker: Talker, batches: list[Batch]) -> Losses:
    talker.eval()
    found = [losses(talker, batch) for batch in batches]
    talker.train()
    return Losses(
        torch.stack([item.books for item in found]).mean(0), torch.stack([item.duration for item in found]).mean()
    )


def train(work: Path, steps: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    talker, corpus = Talker(TalkerConfig()), Corpus(work / "codes")
    optimiser = optimiser_of(talker)
    last = work / "talker" / "last.pt"
    step = resume(last, talker, optimiser)
    held_out = corpus.validation(talker.config)
    print(
        f"{sum(p.numel() for p in talker.parameters()):,} parameters, step {step}, {corpus.hours:.2f} hours", flush=True
    )
    saved = refreshed = time.monotonic()
    recent: list[Tensor] = []
    while step < steps:
        set_rate(optimiser, rate(step, steps, PEAK_RATE))
        recent.append(_step(talker, optimiser, corpus.batch(talker.config, np.random.default_rng((SEED, step)))))
        step += 1
        if step % REPORT_STEPS == 0:
            _report(f"step {step} of {steps}, {corpus.hours:.2f} h", torch.stack(recent).mean(0))
            recent = []
        if time.monotonic() - refreshed > RELOAD_S:
            corpus.refresh()
            refreshed = time.monotonic()
        if time.monotonic() - saved > SAVE_S or step == steps:
            save(last, talker, optimiser, step)
            found = validate(talker, held_out)
            _report(f"validation at {step}", torch.cat([found.books, found.duration[None]]))
            saved = time.monotonic()


def _step(talker: Talker, optimiser: torch.optim.Optimizer, batch: Batch) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        found = losses(talker, batch)
    optimiser.zero_grad()
    found.total.backward()
    torch.nn.utils.clip_grad_norm_(talker.parameters(), 1.0)
    optimiser.step()
    return torch.cat([found.books, found.duration[None]]).detach()


def _report(what: str, values: Tensor) -> None:
    books = " / ".join(f"{value:.2f}" for value in values[:-1])
    print(f"{time.strftime('%H:%M:%S')} {what}: cross-entropy {books}, durations {values[-1]:.4f}", flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("work", type=Path)
    arguments.add_argument("--steps", type=int, default=6_000)
    options = arguments.parse_args()
    train(options.work, options.steps)


if __name__ == "__main__":
    main()
