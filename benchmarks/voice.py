"""The voice through its real schedulers, on one thread: real-time factor and first sound, for one stream and for four.

    python -m benchmarks.voice [--replies 12]

The real-time factor is process CPU time over seconds of sound: other work on the machine does not change it much. The
first sound is wall time from the moment a reply's first clause reaches the talker.
"""

import argparse
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from voice_runtime.cli import shared
from voice_runtime.pipeline import config, pools
from voice_runtime.schedulers.messages import Chunk, Failed, Finished, NewRequest, StreamChunk, StreamDone
from voice_runtime.stages.payloads import Clause, Opening, SpokenClause
from voice_runtime.stages.text import ClauseCutter, TextSettings

TEXTS = (
    "The capital of France is Paris, a large city on the river Seine.",
    "Rain falls when the drops in a cloud become too heavy for the air to hold them up.",
    "I would be glad to help you with that, could you tell me a little more about it?",
    "A good night's sleep, a little exercise and enough water are a fine way to begin.",
)


@dataclass
class Heard:
    """first_s: from the first clause to the first sound. sound_s: length of the reply."""

    begun_s: float
    first_s: float | None = None
    sound_s: float = 0.0


class Voice:
    """Talker and Code2Wav of the default pipeline, one handing on to the other."""

    def __init__(self) -> None:
        from voice_runtime.pipeline.registry import build

        loaded = config.load(shared("pipelines") / "cpu.toml")
        text = loaded.stages["text"]
        assert isinstance(text, TextSettings)
        self._text = text
        self._talker, self._code2wav = build(loaded.stages["talker"]), build(loaded.stages["code2wav"])
        self._talker.start()
        self._code2wav.start()
        threading.Thread(target=self._pass_on, daemon=True).start()
        self._numbers = iter(range(1_000_000))

    def speak(self, texts: Sequence[str]) -> list[Heard]:
        """All replies at the same time."""
        heard: dict[str, Heard] = {}
        for text in texts:
            request_id = f"{next(self._numbers):08d}"
            for stage in (self._talker, self._code2wav):
                stage.receive(NewRequest(request_id, Opening()))
            cutter = ClauseCutter(self._text)
            heard[request_id] = Heard(time.monotonic())
            for clause in [*cutter.push(text), *cutter.close()]:
                self._talker.receive(StreamChunk(request_id, Clause(clause)))
            self._talker.receive(StreamDone(request_id))
        waiting = set(heard)
        for message in self._code2wav.results():
            match message:
                case Chunk(request_id, SpokenClause() as item):
                    one = heard[request_id]
                    one.first_s = one.first_s or time.monotonic() - one.begun_s
                    one.sound_s += len(item.pcm) / 2 / item.rate_hz
                case Finished(request_id):
                    waiting.remove(request_id)
                case Failed(_, error):
                    raise RuntimeError(error)
            if not waiting:
                break
        return list(heard.values())

    def _pass_on(self) -> None:
        for message in self._talker.results():
            match message:
                case Chunk(request_id, item):
                    self._code2wav.receive(StreamChunk(request_id, item))
                case Finished(request_id):
                    self._code2wav.receive(StreamDone(request_id))
                case Failed(_, error):
                    raise RuntimeError(error)


def measure(voice: Voice, streams: int, rounds: int) -> tuple[float, float]:
    """Real-time factor of all streams together (CPU seconds per second of one stream's sound), median first sound."""
    factors, firsts = [], []
    for turn in range(rounds):
        since_s = time.process_time()
        heard = voice.speak([TEXTS[(turn + at) % len(TEXTS)] for at in range(streams)])
        spent_s = time.process_time() - since_s
        factors.append(spent_s / (sum(one.sound_s for one in heard) / streams))
        firsts += [one.first_s for one in heard if one.first_s is not None]
    return statistics.median(factors), statistics.median(firsts)


def growth(minutes: float = 5.0, chunk: int = 4) -> float:
    """CPU time of a chunk after `minutes` of one reply over that in its first second: 1 is constant work."""
    import numpy as np

    from voice_runtime import assets
    from voice_runtime.models.code2wav import Code2Wav

    vocoder = Code2Wav.load(assets.locate("voice-code2wav"))
    state, mask = vocoder.init_state(1), np.ones(1, np.bool_)
    codes = np.random.default_rng(1).integers(0, 1024, (1, chunk, vocoder.books))

    def chunk_s() -> float:
        since_s = time.process_time()
        vocoder.decode(state, codes, mask)
        return time.process_time() - since_s

    chunk_s()
    first = statistics.median(chunk_s() for _ in range(20))
    for _ in range(int(minutes * 60 * 20 / chunk)):
        vocoder.decode(state, codes, mask)
    return statistics.median(chunk_s() for _ in range(20)) / first


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replies", type=int, default=12)
    replies = parser.parse_args().replies
    pools.set_to_one_thread()
    voice = Voice()
    measure(voice, 4, 1)
    print(f"{'streams':>8} {'real-time factor':>18} {'first sound, p50':>18}")
    for streams in (1, 4):
        factor, first_s = measure(voice, streams, max(1, replies // streams))
        print(f"{streams:>8} {factor:>18.3f} {first_s * 1000:>15.0f} ms")
    print(f"work of a chunk after five minutes over that of the first second: {growth():.2f}")


if __name__ == "__main__":
    main()
