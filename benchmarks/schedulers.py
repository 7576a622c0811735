"""What the schedulers cost and what they gain: ratios of two ways of doing the same work, measured in one run.

    python -m benchmarks.schedulers [loop] [gate] [code2wav]

The ways take turns in short blocks, so that a machine that slows down slows them all; a ratio is taken in each block
and its median given, with its quartiles. Torch and ONNX Runtime use one thread.

Each part has a process of its own. One that imports `tests` records what our code touches of SGLang, and the recorder
would be counted as a cost of ours.
"""

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module, resources
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from torch import nn

from benchmarks._measure import Steps, Watch, by_turns, p95, print_table, ratios, spent, with_spread
from voice_runtime.audio.pcm import Samples, to_pcm
from voice_runtime.runner.batch import Batch
from voice_runtime.runner.generate import Generate
from voice_runtime.runner.runner import ModelRunner
from voice_runtime.schedulers.ar import ArScheduler, WholePrompt
from voice_runtime.schedulers.code2wav import Code2WavScheduler, Code2WavSettings, Codes, Rows, StreamingVocoder
from voice_runtime.schedulers.gate import BatchGate
from voice_runtime.schedulers.messages import Chunk, Finished, NewRequest, Outbound, StreamChunk, StreamDone
from voice_runtime.schedulers.simple import OneShot, SimpleScheduler
from voice_runtime.stages import asr
from voice_runtime.stages.base import Stage
from voice_runtime.stages.payloads import Utterance

if TYPE_CHECKING:
    from voice_runtime.sglang_backend.engine import EngineSettings

_numbers = itertools.count()

ROWS = (1, 4, 8)
PROMPT_TOKENS = 32
LOOP_BLOCKS, LOOP_STEPS = 20, 8

GATE_BLOCKS = {1: (12, 8), 8: (6, 24)}  # callers -> blocks, requests of each
STAGGER_S = 0.02

STREAMS = 8
REPLY_FRAMES, CODE2WAV_BLOCKS = 60, 20


class TimedRunner(ModelRunner):
    """The base runner, with its forward passes of decoding timed."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch

    def custom_decode_forward(self, batch: Batch) -> torch.Tensor:
        return self._watch.time(len(batch.rows), batch.forward_pass.run)


class Feed:
    """Stands where upstream's loop receives: the requests at first, and the loop's end after `rounds`."""

    def __init__(self, upstream: Any, requests: list[Any], rounds: int) -> None:
        self._upstream = upstream
        self._requests = requests
        self._rounds = rounds

    def recv_requests(self) -> list[Any]:
        self._rounds -= 1
        self._upstream.gracefully_exit = self._rounds == 0
        requests, self._requests = self._requests, []
        return requests


@contextmanager
def nothing_of_ours(upstream: Any, watch: Watch) -> Iterator[None]:
    """Upstream's own worker in place of ours, its forward passes of decoding timed, and its outputs thrown away."""
    inner = upstream.tp_worker.model_runner
    forward = inner.forward

    def timed(batch: Any, **more: Any) -> Any:
        if not batch.forward_mode.is_decode():
            return forward(batch, **more)
        return watch.time(batch.batch_size, lambda: forward(batch, **more))

    ours = upstream.model_worker
    upstream.model_worker = upstream.tp_worker
    upstream.collector.send_output = lambda message, received=None: None
    inner.forward = timed
    try:
        yield
    finally:
        del inner.forward, upstream.collector.send_output
        upstream.model_worker = ours


def bare_block(upstream: Any, watch: Watch, rows: int) -> None:
    """A block on upstream's event loop as it stands, with its requests put where it receives them."""
    from voice_runtime.sglang_backend.convert import to_upstream

    requests = [to_upstream(f"bare{next(_numbers):012x}", generate) for generate in prompts(rows)]
    upstream.request_receiver = Feed(upstream, requests, rounds=LOOP_STEPS + 2)  # prompts, steps, housekeeping
    upstream.gracefully_exit = False
    with nothing_of_ours(upstream, watch):
        upstream.event_loop_normal()


def open_request(asked: Generate | Callable[[], None]) -> WholePrompt[Any, list[Any]]:
    """A generation, or what runs on the scheduler's thread in place of one: both ways then have the same thread."""
    if isinstance(asked, Generate):
        return WholePrompt(asked, list)
    asked()
    return WholePrompt(None, list)


def run_requests(scheduler: ArScheduler[Any, Any, Any], asked: Sequence[Generate | Callable[[], None]]) -> None:
    """From the inbox to the end of each in the outbox."""
    for one in asked:
        scheduler.inbox.put(NewRequest(f"{next(_numbers):08d}", one))
    ended = 0
    while ended < len(asked):
        ended += is_last(scheduler.outbox.take(timeout_s=60))


def prompts(rows: int) -> list[Generate]:
    """The same ones each time: all but a prompt's last token are in the radix cache."""
    starts = (1_000 + 100 * row for row in range(rows))
    return [Generate(range(start, start + PROMPT_TOKENS), 1 + LOOP_STEPS) for start in starts]


def is_last(message: Outbound[Any] | None) -> bool:
    """Whether the request has ended; anything but sound progress is raised."""
    if not isinstance(message, Chunk | Finished):
        raise RuntimeError(f"{message} came, expected Chunk or Finished")
    return isinstance(message, Finished)


def thinker_settings() -> "EngineSettings":
    """The default pipeline's."""
    from voice_runtime.cli import default_pipeline
    from voice_runtime.pipeline.config import load
    from voice_runtime.sglang_backend.engine import EngineSettings
    from voice_runtime.stages.thinker import ThinkerSettings, model_folder

    settings = load(default_pipeline()).stages["thinker"]
    assert isinstance(settings, ThinkerSettings)
    return EngineSettings(
        model=model_folder(settings.model),
        dtype=settings.dtype,
        kv_tokens=settings.kv_tokens,
        context_tokens=settings.context_tokens,
        max_running=settings.max_running,
    )


def loop() -> None:
    from voice_runtime.sglang_backend.engine import SglangEngine

    if "tests" in sys.modules:
        raise RuntimeError("tests are imported, expected a process that records nothing")
    watch, settings = Watch(), thinker_settings()
    engine = SglangEngine(settings, lambda: TimedRunner(watch))
    scheduler: ArScheduler[Any, Any, Any] = ArScheduler(engine, open_request)
    scheduler.start()

    def block(asked: Sequence[Generate | Callable[[], None]], rows: int) -> Steps:
        run_requests(scheduler, asked)
        return watch.take(rows, at_least=LOOP_STEPS - 3)

    blocks = {}
    for rows in ROWS:
        bare = partial(bare_block, engine._scheduler, watch, rows)
        ways = {"bare": partial(block, [bare], rows), "ours": partial(block, prompts(rows), rows)}
        by_turns(ways, 1)  # warms up: the prompts enter the radix cache
        blocks[rows] = by_turns(ways, LOOP_BLOCKS)
    scheduler.stop()
    print_loop(blocks, f"{settings.model.name}, {settings.dtype}")


def print_loop(blocks: dict[int, dict[str, list[Steps]]], model: str) -> None:
    print_table(
        f"1. ArScheduler's step over SGLang's bare loop ({model}), goal at most 1.05",
        ["rows", "bare ms", "ours ms", "clock", "CPU time", "added ms", "of it CPU", "1 + added / bare"],
        [over_bare(rows, ways["bare"], ways["ours"]) for rows, ways in blocks.items()],
    )
    print("added: time beside the forward pass, ours less bare; the noise of the forward pass is not in it")
    print_table(
        "2. Scheduler and runner beside the forward pass, of ArScheduler's step",
        ["rows", "forward ms", "beside ms", "share", "of it upstream's ms"],
        [beside_forward(rows, ways["bare"], ways["ours"]) for rows, ways in blocks.items()],
    )


def over_bare(rows: int, bare: list[Steps], ours: list[Steps]) -> list[str]:
    pairs = list(zip(ours, bare, strict=True))
    added_s = [mine.beside.wall_s - its.beside.wall_s for mine, its in pairs]
    added_cpu_s = [mine.beside.cpu_s - its.beside.cpu_s for mine, its in pairs]
    return [
        str(rows),
        *(f"{median_ms([block.step.wall_s for block in way]):.1f}" for way in (bare, ours)),
        with_spread(ratios((block.step.wall_s for block in ours), (block.step.wall_s for block in bare))),
        with_spread(ratios((block.step.cpu_s for block in ours), (block.step.cpu_s for block in bare))),
        f"{median_ms(added_s):.2f}",
        f"{median_ms(added_cpu_s):.2f}",
        with_spread([1 + added / block.step.wall_s for added, block in zip(added_s, bare, strict=True)]),
    ]


def beside_forward(rows: int, bare: list[Steps], ours: list[Steps]) -> list[str]:
    return [
        str(rows),
        f"{median_ms([block.forward_s for block in ours]):.1f}",
        f"{median_ms([block.beside.wall_s for block in ours]):.2f}",
        f"{statistics.median(block.beside.wall_s / (block.beside.wall_s + block.forward_s) for block in ours):.1%}",
        f"{median_ms([block.beside.wall_s for block in bare]):.2f}",
    ]


def median_ms(values_s: Sequence[float]) -> float:
    return 1000 * statistics.median(values_s)


@dataclass(frozen=True, slots=True)
class Answers:
    """latencies_s: from the utterance's receipt to its text. shared: the part of them that ran in a batch of 2."""

    latencies_s: list[float]
    shared: float


def recognisers() -> dict[str, Stage]:
    """The production stage, and its model behind two other gates; one at a time is asked."""
    settings = asr.AsrSettings(worker="benchmark")
    production = asr.build(settings)
    assert isinstance(production.scheduler, SimpleScheduler)
    work = production.scheduler._work
    assert isinstance(work, OneShot)
    never = replace(work, gate=BatchGate(settings.batch, max_hold_s=0))
    always = replace(work, building=lambda: 1)
    return {
        "never wait": Stage(SimpleScheduler(never), prepare=asr.prepare),
        "gate": production,
        "always wait": Stage(SimpleScheduler(always), prepare=asr.prepare),
    }


def ask(stage: Stage, clips: Sequence[Utterance], callers: int, requests: int) -> Answers:
    """All callers at once, each asking again as soon as it is answered."""
    answers: list[SimpleQueue[Outbound[Any]]] = [SimpleQueue() for _ in range(callers)]
    latencies_s: list[float] = []
    shared: list[bool] = []

    def call(caller: int) -> None:
        time.sleep(caller * STAGGER_S)
        for number in range(requests // callers):
            asked_s = time.perf_counter()
            stage.receive(NewRequest(f"{caller:02d}{next(_numbers):08d}", clips[(caller + number) % len(clips)]))
            answer = answers[caller].get()
            latencies_s.append(time.perf_counter() - asked_s)
            shared.append(isinstance(answer, Finished) and answer.metrics.get("batch") == 2)

    threads = [threading.Thread(target=call, args=(caller,)) for caller in range(callers)]
    for thread in threads:
        thread.start()
    for message in islice(stage.results(), requests):
        assert is_last(message)
        answers[int(message.request_id[:2])].put(message)
    for thread in threads:
        thread.join()
    return Answers(latencies_s, statistics.mean(shared))


def gate() -> None:
    from tests.support.questions import QUESTIONS
    from tests.support.speech import synthesise

    clips = [Utterance(to_pcm(synthesise(question.text, question.voice))) for question in QUESTIONS[:8]]
    stages = recognisers()
    for stage in stages.values():
        stage.start()
    ask(stages["gate"], clips, callers=1, requests=8)  # warms up
    rows = [row for callers in GATE_BLOCKS for row in gate_rows(stages, clips, callers)]
    for stage in stages.values():
        stage.stop()
    print_table(
        "3. Recognition behind its gate, and without one (ratios to never wait)",
        ["callers", "gate", "p50 ms", "p95 ms", "p50", "p95", "in batches of 2"],
        rows,
    )


def gate_rows(stages: dict[str, Stage], clips: Sequence[Utterance], callers: int) -> Iterator[list[str]]:
    blocks, requests = GATE_BLOCKS[callers]
    ways = {name: partial(ask, stage, clips, callers, requests) for name, stage in stages.items()}
    came = by_turns(ways, blocks)
    never = came["never wait"]
    for name, answers in came.items():
        latencies_s = [latency for block in answers for latency in block.latencies_s]
        yield [
            str(callers),
            name,
            f"{median_ms(latencies_s):.0f}",
            f"{1000 * p95(latencies_s):.0f}",
            *(with_spread(ratios(each(answers, of), each(never, of))) for of in (statistics.median, p95)),
            f"{statistics.mean(block.shared for block in answers):.0%}",
        ]


def each(blocks: Sequence[Answers], of: Callable[[list[float]], float]) -> list[float]:
    return [of(block.latencies_s) for block in blocks]


class CausalStack:
    """A stand-in for a vocoder: causal convolutions and wide layers over (rows, frames), all in one pass. No sound."""

    books, codebook_size = 4, 1024
    frame_samples, delay_samples = 1_200, 0
    width, kernel, blocks = 256, 7, 4

    def __init__(self) -> None:
        width = self.width
        self._embedding = nn.Embedding(self.codebook_size, width)
        self._convolutions = [nn.Conv1d(width, width, self.kernel, groups=width) for _ in range(self.blocks)]
        self._mixes = [
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(self.blocks)
        ]
        self._head = nn.Linear(width, self.frame_samples)

    def init_state(self, rows: int) -> torch.Tensor:
        """Tails of the convolutions."""
        return torch.zeros(self.blocks, rows, self.kernel - 1, self.width)

    @torch.inference_mode()
    def decode(self, state: torch.Tensor, codes: NDArray[np.int64], mask: Rows) -> Samples:
        rows = torch.from_numpy(np.flatnonzero(mask))
        x = self._embedding(torch.from_numpy(codes[mask])).sum(2)
        for block, (convolution, mix) in enumerate(zip(self._convolutions, self._mixes, strict=True)):
            seen = torch.cat([state[block, rows], x], 1)
            state[block, rows] = seen[:, 1 - self.kernel :]
            x = x + mix(convolution(seen.mT).mT)
        sound = np.zeros((len(mask), codes.shape[1] * self.frame_samples), np.float32)
        sound[mask] = self._head(x).flatten(1).numpy()
        return sound

    def flush(self, state: torch.Tensor, mask: Rows) -> Samples:
        return np.zeros((len(mask), self.delay_samples), np.float32)

    def reset(self, state: torch.Tensor, mask: Rows) -> None:
        state[:, torch.from_numpy(np.flatnonzero(mask))] = 0


def choose_vocoder() -> StreamingVocoder:
    """The voice's own where its weights are installed, else the stand-in."""
    weights = Path(str(resources.files("voice_runtime"))) / "weights" / "voice" / "code2wav.safetensors"
    if not weights.is_file():
        return CausalStack()
    vocoder: StreamingVocoder = import_module("voice_runtime.models.code2wav").Code2Wav.load(weights)
    return vocoder


class Plain:
    """Codes and samples as they are."""

    def codes(self, item: Codes) -> Codes:
        return item

    def sound(self, samples: Samples, start: int) -> Samples:
        return samples


Speaker = Code2WavScheduler[Codes, Samples]


def speaker(vocoder: StreamingVocoder, slots: int) -> Speaker:
    return Code2WavScheduler(vocoder, lambda payload: Plain(), Code2WavSettings(slots))


def speak(scheduler: Speaker, *groups: Sequence[Codes]) -> None:
    """Group after group, the replies of one all at once. Without the scheduler's thread."""
    for replies in groups:
        speak_together(scheduler, replies)


def speak_together(scheduler: Speaker, replies: Sequence[Codes]) -> None:
    for codes in replies:
        request_id = f"{next(_numbers):08d}"
        scheduler.inbox.put(NewRequest(request_id, codes))
        scheduler.inbox.put(StreamChunk(request_id, codes))
        scheduler.inbox.put(StreamDone(request_id))
    ended = 0
    while ended < len(replies):
        scheduler.step()
        while len(scheduler.outbox):
            ended += is_last(scheduler.outbox.take())


def code2wav() -> None:
    vocoder = choose_vocoder()
    shape = (STREAMS, REPLY_FRAMES, vocoder.books)
    replies = list(np.random.default_rng(5).integers(vocoder.codebook_size, size=shape))
    together, alone = speaker(vocoder, STREAMS), speaker(vocoder, 1)
    ways = {
        "one by one": partial(spent, speak, alone, *([codes] for codes in replies)),
        "batched": partial(spent, speak, together, replies),
    }
    by_turns(ways, 1)
    came = by_turns(ways, CODE2WAV_BLOCKS)
    batched, single = came["batched"], came["one by one"]
    print_table(
        f"4. {STREAMS} replies of {REPLY_FRAMES} frames through Code2WavScheduler ({type(vocoder).__name__})",
        ["one by one ms", "batched ms", "batched over one by one", "CPU time"],
        [
            [
                *(f"{median_ms([block.wall_s for block in way]):.0f}" for way in (single, batched)),
                with_spread(ratios((block.wall_s for block in batched), (block.wall_s for block in single))),
                with_spread(ratios((block.cpu_s for block in batched), (block.cpu_s for block in single))),
            ]
        ],
    )


PARTS = {"loop": loop, "gate": gate, "code2wav": code2wav}


def run_apart(part: str) -> None:
    """SGLang says much on standard error while it is imported: it is shown when the part fails."""
    command = [sys.executable, "-m", "benchmarks.schedulers", "--here", part]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{done.stderr}\n{part} ended with {done.returncode}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--here", action="store_true", help="run one part in this process")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"parts are {', '.join(PARTS)}, not {', '.join(sorted(unknown))}")
    if options.here:
        torch.set_num_threads(1)
        PARTS[options.parts[0]]()
        return
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    for part in options.parts or PARTS:
        with Console(stderr=True).status(f"measuring {part}"):
            run_apart(part)


if __name__ == "__main__":
    main()
