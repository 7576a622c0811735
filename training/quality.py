"""Code2Wav against the teacher's own sound: python -m training.quality WORK, after training.evaluate.

PESQ-WB and STOI, means over WORK/pairs. Both are of the noise-for-noise kind: the teacher's noise is random, so neither
can reach its maximum.
"""

import json
import sys
import wave
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pesq import pesq
from pystoi import stoi

RATE_HZ = 16_000


def _read(path: Path) -> NDArray[np.float32]:
    with wave.open(str(path)) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    return (samples / 32_768).astype(np.float32)


def main() -> None:
    work = Path(sys.argv[1])
    scores = []
    for path in sorted((work / "pairs").glob("*-teacher.wav")):
        wanted, found = _read(path), _read(path.with_name(path.name.replace("teacher", "code2wav")))
        length = min(len(wanted), len(found))
        wanted, found = wanted[:length], found[:length]
        scores.append((pesq(RATE_HZ, wanted, found, "wb"), stoi(wanted, found, RATE_HZ)))
    means = np.mean(scores, 0)
    print(f"{len(scores)} replies: PESQ-WB {means[0]:.2f}, STOI {means[1]:.3f}")
    (work / "quality.json").write_text(json.dumps({"pesq_wb": means[0], "stoi": means[1], "replies": len(scores)}))


if __name__ == "__main__":
    main()
