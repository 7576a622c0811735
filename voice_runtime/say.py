"""`voice-runtime say`: text with a pipeline's voice, through its own stages and schedulers, in this process."""

import threading
from collections.abc import Iterator
from pathlib import Path

from voice_runtime.audio import wav
from voice_runtime.errors import ConfigError, VoiceRuntimeError
from voice_runtime.pipeline.config import PipelineConfig
from voice_runtime.pipeline.registry import build
from voice_runtime.schedulers.messages import Chunk, Failed, Finished, NewRequest, StreamChunk, StreamDone
from voice_runtime.stages.base import Stage
from voice_runtime.stages.payloads import Opening, SpokenClause
from voice_runtime.stages.text import TextSettings, clauses

REQUEST = "say"


def say(config: PipelineConfig, text: str, out: Path) -> float:
    """Speak `text` into a WAV file and return its length in seconds.

    Raises:
        ConfigError: the pipeline has no voice behind a text stage, or there is nowhere to write.
        VoiceRuntimeError: a stage failed.
    """
    if not out.parent.is_dir():
        raise ConfigError(f"{out.parent} is not there, expected a folder to write {out.name} to")
    with_voice = Voice(config)
    try:
        pcm, rate_hz = with_voice.speak(text)
    finally:
        with_voice.stop()
    wav.write(out, pcm, rate_hz)
    return len(pcm) / 2 / rate_hz


class Voice:
    """The stages of a pipeline from text to sound, loaded and warm."""

    def __init__(self, config: PipelineConfig) -> None:
        texts = [stage for stage in config.stages.values() if isinstance(stage, TextSettings)]
        if not texts or texts[0].next is None:
            raise ConfigError(f"pipeline {config.name} has no voice, expected a text stage with another after it")
        self._text = texts[0]
        self._numbers = iter(range(10**9))
        self._stages: list[Stage] = []
        name = self._text.next
        while name is not None:
            self._stages.append(build(config.stages[name]))
            name = config.stages[name].next
        for stage in self._stages:
            stage.start()

    def speak(self, text: str) -> tuple[bytes, int]:
        """16-bit little-endian mono and its rate.

        Raises VoiceRuntimeError: there is nothing to say in the text, or a stage failed.
        """
        pieces = list(self.pieces(text))
        pcm = b"".join(piece.pcm for piece in pieces)
        if not pcm:
            raise VoiceRuntimeError("the text has nothing to say, expected a word")
        return pcm, pieces[0].rate_hz

    def pieces(self, text: str) -> Iterator[SpokenClause]:
        """The sound as it comes, cut at the pipeline's own clauses."""
        request_id = f"{REQUEST}-{next(self._numbers):08d}"
        for stage in self._stages:
            stage.receive(NewRequest(request_id, Opening()))
        links = [
            threading.Thread(target=_pass_on, args=pair) for pair in zip(self._stages, self._stages[1:], strict=False)
        ]
        for link in links:
            link.start()
        for clause in clauses(text, self._text):
            self._stages[0].receive(StreamChunk(request_id, clause))
        self._stages[0].receive(StreamDone(request_id))
        yield from _sound(self._stages[-1])
        for link in links:
            link.join()

    def stop(self) -> None:
        for stage in self._stages:
            stage.stop()


def _pass_on(stage: Stage, following: Stage) -> None:
    """One request's results, from a stage to the next."""
    for message in stage.results():
        match message:
            case Chunk(request_id, item):
                following.receive(StreamChunk(request_id, item))
            case Finished(request_id):
                following.receive(StreamDone(request_id))
                return
            case Failed(request_id):
                following.scheduler.outbox.put(message)  # in the place of the sound that will not come
                return


def _sound(stage: Stage) -> Iterator[SpokenClause]:
    for message in stage.results():
        match message:
            case Chunk(_, SpokenClause() as piece):
                yield piece
            case Finished():
                return
            case Failed(_, error):
                raise VoiceRuntimeError(f"the voice failed: {error}")
