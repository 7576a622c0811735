"""Code2Wav: frames of codec codes in, sound out, each piece with the words that begin in it."""

from collections import deque
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from voice_runtime import assets
from voice_runtime.audio.pcm import to_pcm
from voice_runtime.schedulers import code2wav
from voice_runtime.schedulers.code2wav import Code2WavScheduler, Samples
from voice_runtime.schedulers.messages import NewRequest, Sent, StreamChunk, StreamDone
from voice_runtime.sglang_backend import cpu_compat
from voice_runtime.stages.base import Stage, StageSettings
from voice_runtime.stages.payloads import Codes, Opening, SpokenClause, SpokenWord, Word


class Code2WavSettings(StageSettings, frozen=True, tag="code2wav.voice", kw_only=True):
    """voice: "heart", the one that comes with the program. slots: most replies that are spoken at once.

    ramp: frames of 50 ms that a reply's first, second, ... piece takes; the last goes for all that follow.
    """

    voice: Literal["heart"] = "heart"
    slots: Annotated[int, Meta(ge=1, le=64)] = 8
    ramp: tuple[Annotated[int, Meta(ge=1, le=100)], ...] = (3, 3, 6, 8)


class SpokenReply:
    """One reply's adapter: which words begin in a piece of sound."""

    def __init__(self, books: int, frame_samples: int, rate_hz: int) -> None:
        self._books = books
        self._frame_samples = frame_samples
        self._rate_hz = rate_hz
        self._words: deque[Word] = deque()

    def codes(self, item: Codes) -> code2wav.Codes:
        self._words.extend(item.words)
        return np.frombuffer(item.codes, "<u2").reshape(-1, self._books).astype(np.int64)

    def sound(self, samples: Samples, start: int) -> SpokenClause:
        end = start + len(samples)
        words = []
        while self._words and (at := self._words[0].frame * self._frame_samples) < end:
            words.append(SpokenWord(self._words.popleft().text, max(0, at - start)))
        return SpokenClause(words, to_pcm(samples), self._rate_hz)


def build(settings: Code2WavSettings) -> Stage:
    from voice_runtime.models.code2wav import Code2Wav

    cpu_compat.one_interop_thread()
    vocoder = Code2Wav.load(assets.locate("voice-code2wav"))
    scheduler: Code2WavScheduler[Codes, SpokenClause] = Code2WavScheduler(
        vocoder,
        lambda _: SpokenReply(vocoder.books, vocoder.frame_samples, vocoder.rate_hz),
        code2wav.Code2WavSettings(settings.slots, settings.ramp),
    )
    silence = np.zeros((16, vocoder.books), "<u2").tobytes()
    warm_up: list[Sent[Any]] = [
        NewRequest("warm-up", Opening()),
        StreamChunk("warm-up", Codes(silence, [])),
        StreamDone("warm-up"),
    ]
    return Stage(scheduler, warm_up=warm_up)
