"""Let the teacher speak the texts; keep what the student needs: phonemes, durations, latents, f0.

python -m training.synthesise WORK [--hours H]: writes WORK/speech/NNNN.npz, 220 utterances each; resumable.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.teacher import Teacher
from training.text import training_texts

PER_SOURCE = (60, 40, 60, 60)  # drills, verses, replies of both parts
FEWEST = sum(PER_SOURCE) // 2  # texts in a file
POLL_S = 15
LONGEST_PHONEMES = 300
FRAMES_PER_HOUR = 80 * 3600


@dataclass(frozen=True, slots=True)
class Utterance:
    """One or more sentences, one after the other, as one stream.

    phonemes: int64 (P,), every sentence with its 0 at both ends; slots: int64 (P,), of 25 ms, each sentence's even
    latents: float16 (F, 256) and f0_hz: float32 (F,), at 80 Hz, F = 2 * slots.sum()
    """

    phonemes: NDArray[np.int64]
    slots: NDArray[np.int64]
    latents: NDArray[np.float16]
    f0_hz: NDArray[np.float32]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("work", type=Path)
    arguments.add_argument("--hours", type=float, default=12.0)
    arguments.add_argument("--wait", action="store_true", help="for text that is still being written")
    options = arguments.parse_args()
    synthesise(options.work, options.hours, wait=options.wait)


def synthesise(work: Path, hours: float, wait: bool = False) -> None:
    folder = work / "speech"
    folder.mkdir(parents=True, exist_ok=True)
    teacher = Teacher()
    written = sorted(folder.glob("*.npz"))
    spoken, index = sum(len(np.load(path)["f0_hz"]) for path in written), len(written)
    taken = np.load(written[-1])["taken"] if written else np.zeros(len(PER_SOURCE), np.int64)
    while spoken < hours * FRAMES_PER_HOUR:
        texts = shard_texts(training_texts(work / "text"), taken)
        if texts is None and not wait:
            break
        if texts is None:
            time.sleep(POLL_S)
            continue
        taken = taken + [len(part) for part in texts]
        utterances = [utterance(teacher, text) for part in texts for text in part]
        spoken += _write_shard(folder / f"{index:04d}.npz", utterances, taken)
        index += 1
        print(f"{spoken / FRAMES_PER_HOUR:.2f} hours in {index} files", flush=True)


def shard_texts(sources: list[list[str]], taken: NDArray[np.int64]) -> list[list[str]] | None:
    """The texts of the next file, by source: some of each, so that a file is a fair sample. None: too few are left.

    taken: int64 (sources,), how many of each the files before it hold
    """
    parts = [source[at : at + n] for source, at, n in zip(sources, taken, PER_SOURCE, strict=True)]
    return parts if sum(map(len, parts)) >= FEWEST else None


def utterance(teacher: Teacher, text: str) -> Utterance | None:
    """None when a sentence is too long or there is nothing to say."""
    strings = teacher.phonemes(text)
    if not strings or any(len(string) > LONGEST_PHONEMES for string in strings):
        return None
    parts = [teacher.speak(string) for string in strings]
    return Utterance(
        np.concatenate([part.phonemes for part in parts]),
        np.concatenate([part.slots for part in parts]),
        np.concatenate([part.latents for part in parts]).astype(np.float16),
        np.concatenate([part.f0_hz for part in parts]),
    )


def _write_shard(path: Path, utterances: list[Utterance | None], taken: NDArray[np.int64]) -> int:
    kept = [item for item in utterances if item is not None]
    unfinished = path.with_suffix(".part")
    with unfinished.open("wb") as file:
        np.savez(
            file,
            phoneme_counts=np.array([len(item.phonemes) for item in kept]),
            phonemes=np.concatenate([item.phonemes for item in kept]),
            slots=np.concatenate([item.slots for item in kept]),
            latents=np.concatenate([item.latents for item in kept]),
            f0_hz=np.concatenate([item.f0_hz for item in kept]),
            taken=taken,
        )
    unfinished.rename(path)
    return sum(len(item.f0_hz) for item in kept)


def read_shard(path: Path) -> Iterator[Utterance]:
    stored = np.load(path)
    phonemes, slots, latents, f0_hz = (stored[name] for name in ("phonemes", "slots", "latents", "f0_hz"))
    phoneme, frame = 0, 0
    for count in stored["phoneme_counts"]:
        frames = 2 * int(slots[phoneme : phoneme + count].sum())
        mine, sound = slice(phoneme, phoneme + count), slice(frame, frame + frames)
        yield Utterance(phonemes[mine], slots[mine], latents[sound], f0_hz[sound])
        phoneme, frame = phoneme + int(count), frame + frames


if __name__ == "__main__":
    main()
