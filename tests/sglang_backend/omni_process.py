"""What test_omni_thinker.py has done in a process of its own, since upstream allows one engine a process."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from tests.support import omni
from tests.support.omni import Answer, Prompt
from voice_runtime.runner.batch import Batch
from voice_runtime.runner.embeddings import ThinkerModelRunner
from voice_runtime.runner.generate import Generate
from voice_runtime.schedulers.ar import ArScheduler, WholePrompt
from voice_runtime.schedulers.messages import Aborted, Chunk, Failed, Finished, Inquire, Ledger, NewRequest, Outbound
from voice_runtime.sglang_backend import cpu_compat
from voice_runtime.sglang_backend.engine import EngineSettings, SglangEngine

CHUNK_TOKENS, KV_TOKENS, WAIT_S = 16, 300, 60.0


@dataclass(frozen=True, slots=True)
class Computed:
    """The positions [start, end) of a request that one batch computed. rows: how many the batch had."""

    start: int
    end: int
    rows: int


@dataclass(slots=True)
class Outcome:
    """One request: what came of it, and transformers' own answer to the same prompt.

    logits: before each token, float, shape (vocabulary,).
    """

    prompt: Prompt
    expected: Answer | None
    tokens: list[int] = field(default_factory=list)
    logits: list[NDArray[np.float32]] = field(default_factory=list)
    computed: list[Computed] = field(default_factory=list)
    end: str = ""
    cached_tokens: int = 0
    retractions: int = 0


@dataclass(frozen=True, slots=True)
class Done:
    """What one of the acts below did. held: by the engine after it."""

    outcomes: list[Outcome]
    held: dict[str, int]


class RecordingRunner(ThinkerModelRunner):
    """Keeps what is computed of each request, and its logits."""

    def __init__(self, outcomes: dict[str, Outcome]) -> None:
        super().__init__()
        self._outcomes = outcomes

    def post_prefill(self, batch: Batch, logits: torch.Tensor) -> None:
        self._record(batch, logits)

    def post_decode(self, batch: Batch, logits: torch.Tensor) -> None:
        self._record(batch, logits)

    def _record(self, batch: Batch, logits: torch.Tensor) -> None:
        for row, scores in zip(batch.rows, logits, strict=True):
            outcome = self._outcomes[row.request.request_id]
            outcome.computed.append(Computed(row.start, row.end, len(batch.rows)))
            if row.draws:
                outcome.logits.append(scores.numpy().copy())


class Bench:
    """The scheduler on the tiny thinker, and transformers beside it."""

    def __init__(self, folder: Path) -> None:
        self.outcomes: dict[str, Outcome] = {}
        self.reference = omni.Reference(folder)
        settings = EngineSettings(
            model=folder,
            dtype="float32",
            kv_tokens=KV_TOKENS,
            context_tokens=KV_TOKENS,
            chunked_prefill_tokens=CHUNK_TOKENS,
        )
        engine = SglangEngine(settings, make_runner=lambda: RecordingRunner(self.outcomes))
        self.scheduler: ArScheduler[Generate, Generate, list[int]] = ArScheduler(
            engine, lambda generate: WholePrompt(generate, list)
        )
        self._ids = (f"{number:08d}" for number in itertools.count())

    def generate(self, prompt: Prompt, tokens: int) -> Generate:
        conditioning = self.reference.embedded(prompt) if prompt.spans else None
        return Generate(prompt.ids, tokens, repetition_penalty=omni.REPETITION_PENALTY, conditioning=conditioning)

    def ask(self, prompt: Prompt, generate: Generate, expected: Answer | None = None) -> str:
        request_id = next(self._ids)
        self.outcomes[request_id] = Outcome(prompt, expected)
        self.scheduler.inbox.put(NewRequest(request_id, generate))
        return request_id

    def together(self, prompts: Sequence[Prompt], tokens: int) -> list[Outcome]:
        """All sent at once, once everything about them is known."""
        ready = [(prompt, self.generate(prompt, tokens), self.reference.answer(prompt, tokens)) for prompt in prompts]
        return self.wait([self.ask(*one) for one in ready])

    def take(self) -> Outbound[list[int]]:
        message = self.scheduler.outbox.take(WAIT_S)
        assert message is not None, "nothing came"
        if message.request_id in self.outcomes:
            _note(self.outcomes[message.request_id], message)
        return message

    def wait(self, request_ids: Sequence[str]) -> list[Outcome]:
        outcomes = [self.outcomes[request_id] for request_id in request_ids]
        while not all(outcome.end for outcome in outcomes):
            self.take()
        return outcomes

    def held(self) -> dict[str, int]:
        """What is held once the engine has done its housekeeping."""
        while True:
            self.scheduler.inbox.put(Inquire("ledger00"))
            message = self.take()
            assert isinstance(message, Ledger)
            if not message.held["generations"]:
                return dict(message.held)


def _note(outcome: Outcome, message: Outbound[list[int]]) -> None:
    match message:
        case Chunk(_, tokens):
            outcome.tokens += tokens
        case Finished(metrics=metrics):
            outcome.cached_tokens, outcome.retractions = int(metrics["cached_tokens"]), int(metrics["retractions"])
            outcome.end = "finished"
        case Aborted():
            outcome.end = "aborted"
        case Failed(_, error):
            outcome.end = error


def audio() -> Prompt:
    return omni.prompt(1, omni.tone(200, 2.5))


def other_audio() -> Prompt:
    """Its ids are those of `audio`."""
    return omni.prompt(1, omni.tone(600, 2.5))


def image() -> Prompt:
    return omni.prompt(2, omni.picture("red"))


def audio_and_image() -> Prompt:
    return omni.prompt(3, omni.picture("blue"), omni.words(8, 6), omni.tone(300, 1.2))


def text() -> Prompt:
    return omni.prompt(4, omni.words(9, 20))


def alone(bench: Bench) -> list[Outcome]:
    return [bench.together([prompt], 12)[0] for prompt in (audio(), image(), audio_and_image(), text())]


def batched(bench: Bench) -> list[Outcome]:
    return bench.together([text(), image(), audio(), audio_and_image()], 24)


def equal_ids_in_turn(bench: Bench) -> list[Outcome]:
    return [bench.together([prompt], 8)[0] for prompt in (audio(), other_audio())]


def equal_ids_at_once(bench: Bench) -> list[Outcome]:
    return bench.together([audio(), other_audio()], 8)


def aborted(bench: Bench) -> list[Outcome]:
    """One while it decodes, the other in the middle of its audio: its chunks ride along with the first's tokens."""
    decoding, prefilling = image(), omni.prompt(5, omni.tone(250, 12))
    ready = bench.generate(prefilling, 8)
    first = bench.ask(decoding, bench.generate(decoding, 60))
    bench.take()
    second = bench.ask(prefilling, ready)
    while not bench.outcomes[second].computed:
        bench.take()
    bench.scheduler.abort(second)
    bench.scheduler.abort(first)
    return bench.wait([first, second])


def retracted(bench: Bench) -> list[Outcome]:
    """334 positions on 300 pages: upstream admits all four, hoping that not all make full use of their length."""
    return bench.together([audio(), image(), other_audio(), audio_and_image()], 44)


def refused(bench: Bench) -> list[Outcome]:
    """Embeddings that are too narrow, beside a sound request."""
    sound, faulty = bench.generate(image(), 4), bench.generate(audio(), 4)
    span = faulty.conditioning.spans[0]
    narrow = replace(faulty.conditioning, spans=[replace(span, embeds=span.embeds[:, 1:])])
    expected = bench.reference.answer(image(), 4)
    first = bench.ask(image(), sound, expected)
    return bench.wait([first, bench.ask(audio(), replace(faulty, conditioning=narrow))])


ACTS: tuple[Callable[[Bench], list[Outcome]], ...] = (
    alone,
    batched,
    equal_ids_in_turn,
    equal_ids_at_once,
    aborted,
    retracted,
    refused,
)


def run(folder: Path) -> dict[str, Done]:
    """Every act on one engine, by its name."""
    cpu_compat.prepare()
    torch.set_num_threads(1)
    omni.save(folder)
    bench = Bench(folder)
    bench.scheduler.start()
    try:
        return {act.__name__: Done(act(bench), bench.held()) for act in ACTS}
    finally:
        bench.scheduler.stop()
