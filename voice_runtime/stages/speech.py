"""Speech by Hibari: clauses in, each one's sound out."""

from collections.abc import Iterable
from typing import Any, Literal

from voice_runtime.audio.pcm import to_pcm
from voice_runtime.models import hibari
from voice_runtime.schedulers.messages import NewRequest, Sent, StreamChunk, StreamDone
from voice_runtime.schedulers.simple import SimpleScheduler, Streamed
from voice_runtime.stages.base import Stage, StageSettings
from voice_runtime.stages.payloads import Clause, Opening, SpokenClause


class SpeechSettings(StageSettings, frozen=True, tag="speech.hibari", kw_only=True):
    """voice: "heart", the one that comes in the package."""

    voice: Literal["heart"] = "heart"


class ReplySpeech:
    """One reply: every clause is synthesised by itself; the sounds in order are the reply."""

    ended = False

    def __init__(self, voice: hibari.HibariVoice) -> None:
        self._voice = voice

    def push(self, item: Clause) -> Iterable[SpokenClause]:
        samples = self._voice.speak(item.text)
        yield SpokenClause.spread(item.text, to_pcm(samples), hibari.RATE_HZ)

    def close(self) -> Iterable[SpokenClause]:
        return ()


def build(settings: SpeechSettings) -> Stage:
    voice = hibari.HibariVoice(settings.voice)
    work: Streamed[Clause, SpokenClause] = Streamed(lambda _: ReplySpeech(voice))
    warm_up: list[Sent[Any]] = [
        NewRequest("warm-up", Opening()),
        StreamChunk("warm-up", Clause("Hello there.")),
        StreamDone("warm-up"),
    ]
    return Stage(SimpleScheduler(work), warm_up=warm_up)
