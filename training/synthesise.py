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
RULED = 2  # sources that are made by rule or come from a book
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
    spoken, index = sum(len(np.load(path)["f0_hz"]) for path in folder.glob("*.npz")), len(list(folder.glob("*.npz")))
    while spoken < hours * FRAMES_PER_HOUR:
        texts = shard_texts(training_texts(work / "text"), index)
        if texts is None and not wait:
            break
        if texts is None:
            time.sleep(POLL_S)
            continue
        spoken += _write_shard(folder / f"{index:04d}.npz", [utterance(teacher, text) for text in texts])
        index += 1
        print(f"{spoken / FRAMES_PER_HOUR:.2f} hours in {index} files", flush=True)


def shard_texts(sources: list[list[str]], index: int) -> list[str] | None:
    """The texts of file `index`, some of every source, so that each file is a fair sample; None when there is no more.

    Drills and verses go on when the replies, which take longest to write, are used up.
    """
    parts = [source[index * n : (index + 1) * n] for source, n in zip(sources, PER_SOURCE, strict=True)]
    whole = all(len(part) == n for part, n in zip(parts[:RULED], PER_SOURCE, strict=False))
    return [text for part in parts for text in part] if whole else None


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


def _write_shard(path: Path, utterances: list[Utterance | None]) -> int:
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
