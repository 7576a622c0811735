"""The talker: clauses in, frames of codec codes out. An autoregressive codec language model on SGLang."""

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from voice_runtime import assets
from voice_runtime.runner.generate import Generate
from voice_runtime.schedulers.ar import ArScheduler
from voice_runtime.schedulers.messages import NewRequest, Sent, StreamChunk, StreamDone
from voice_runtime.sglang_backend.codec_folder import codec_folder
from voice_runtime.sglang_backend.engine import EngineSettings, SglangEngine
from voice_runtime.stages.base import Stage, StageSettings
from voice_runtime.stages.payloads import Clause, Codes, Opening, Word


class TalkerSettings(StageSettings, frozen=True, tag="talker.codec_lm", kw_only=True):
    """voice: "heart", the one that comes with the program. max_running: most replies that are spoken at once.

    temperature, seed: of drawing the first book's codes; 0 takes the likeliest.
    """

    voice: Literal["heart"] = "heart"
    max_running: Annotated[int, Meta(ge=1, le=64)] = 8
    temperature: Annotated[float, Meta(ge=0, le=2)] = 0.0
    seed: Annotated[int, Meta(ge=0)] | None = None


# The model was trained on windows of about 256 positions: history and one piece of text.
CONTEXT_POSITIONS = 640


class SpokenReply:
    """One reply: each clause is one generation, which goes on from the last frames of the one before.

    While there is no clause that is not spoken yet, nothing is generated.
    """

    def __init__(self, talker: Any, reader: Any, settings: TalkerSettings) -> None:
        from voice_runtime.models.talker import no_history

        self.closed = False
        self._talker = talker
        self._reader = reader
        self._settings = settings
        self._clauses: list[str] = []
        self._unsaid = ""  # text before the next word that has no sound
        self._history = no_history(talker.config)
        self._conditioning: Any = None  # of the clause that is being spoken
        self._words: list[Word] = []
        self._frames = 0  # of the reply, made so far
        self._made: list[Sequence[int]] = []  # of the clause

    def push(self, item: Clause) -> None:
        self._clauses.append(item.text)

    def close(self) -> None:
        self.closed = True

    def next(self) -> Generate | None:
        self._remember()
        while self._clauses or (self.closed and self._reader.kept_back):
            text = self._clauses.pop(0) if self._clauses else ""
            chunk = self._reader.read(text, last=self.closed and not self._clauses)
            if chunk is None:
                self._unsaid += text
                continue
            self._words = list(self._timed(chunk.text, chunk.words))
            self._conditioning = chunk.conditioning
            return self._generate()
        return None

    def result(self, items: Sequence[Sequence[int]]) -> Codes:
        """Frames as they come; a clause's words go with its first ones."""
        words, self._words = self._words, []
        self._made += items
        self._frames += len(items)
        return Codes(np.asarray(items, "<u2").tobytes(), words)

    def _generate(self) -> Generate:
        import torch

        from voice_runtime.runner.feedback import CodecPrompt

        history = self._history
        prompt = CodecPrompt(torch.cat([history.conditioning, self._conditioning]), history.codes)
        return Generate(
            [0] * (len(history.codes) + 1),  # stand-ins: the inputs are made of the conditioning
            len(self._conditioning),
            temperature=self._settings.temperature,
            seed=self._settings.seed,
            conditioning=prompt,
        )

    def _remember(self) -> None:
        """The clause has been spoken: its last frames are the history of the next."""
        import torch

        if self._made:
            made, self._made = torch.tensor(self._made), []
            self._history = self._history.then(self._conditioning, made, self._talker.config.history_frames)

    def _timed(self, text: str, spans: Sequence[Any]) -> Iterator[Word]:
        """The chunk's text in pieces, each from a spoken word to the next, with the frame where it begins."""
        piece, frame, waiting = self._unsaid, self._frames, list(spans)
        self._unsaid = ""
        for token in re.findall(r"\s*\S+\s*", text):
            if waiting and token.strip() == waiting[0].text:
                span = waiting.pop(0)
                if piece.strip():
                    yield Word(piece, frame)
                    piece = ""
                frame = self._frames + span.first_frame
            piece += token
        yield Word(piece, frame)


def build(settings: TalkerSettings) -> Stage:
    from voice_runtime.models.hibari import phonemizer
    from voice_runtime.models.talker import Reader, Talker
    from voice_runtime.runner.feedback import FeedbackARModelRunner

    weights = assets.locate("voice-talker")
    talker, phonemes = Talker.load(weights), phonemizer()
    engine_settings = EngineSettings(
        model=codec_folder(assets.cache_folder() / "talker", weights, talker.config.lm),
        models="voice_runtime.sglang_backend",
        dtype="float32",
        kv_tokens=settings.max_running * CONTEXT_POSITIONS,
        context_tokens=CONTEXT_POSITIONS,
        max_running=settings.max_running,
        # Speech is conditioned on more than its ids, so no page could be used again: an abort frees all at once.
        radix_cache=False,
    )
    scheduler: ArScheduler[Clause, Generate, Codes] = ArScheduler(
        SglangEngine(engine_settings, FeedbackARModelRunner),
        lambda _: SpokenReply(talker, Reader(phonemes, talker), settings),
    )
    warm_up: list[Sent[Any]] = [
        NewRequest("warm-up", Opening()),
        StreamChunk("warm-up", Clause("Hello there, it is good to hear from you. ")),
        StreamDone("warm-up"),
    ]
    return Stage(scheduler, warm_up=warm_up)
