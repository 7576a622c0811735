"""The pipeline as the session sees it: requests in, results out, one abort for all stages. Runs on the event loop.

Results pass through here on their way to the next stage, so that an abort or a dead worker is dealt with in one place.
"""

import asyncio
import itertools
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, assert_never

from voice_runtime.errors import QueueFullError, StageDiedError
from voice_runtime.pipeline.config import PipelineConfig
from voice_runtime.pipeline.link import Contexts, WorkerLink
from voice_runtime.schedulers.messages import (
    Abort,
    Aborted,
    Chunk,
    Failed,
    Finished,
    Inquire,
    Ledger,
    NewRequest,
    Outbound,
    Sent,
    StreamChunk,
    StreamDone,
    describe,
)
from voice_runtime.stages.payloads import Opening, Payload
from voice_runtime.stages.text import clauses

logger = logging.getLogger(__name__)
NAMED_ERRORS = ("RequestError:", "QueueFullError:")
LEDGER_TIMEOUT_S = 2.0
SETTLE_S = 10.0  # an abort takes one step of a stage; the longest is a chunk of a prompt, a second or two


@dataclass(frozen=True, slots=True)
class Marks:
    """When the stages of a request first brought something, and what they counted.

    first_s: stage -> time.monotonic() of its first result. metrics: stage -> counts given at its end.
    """

    first_s: dict[str, float] = field(default_factory=dict)
    metrics: dict[str, Mapping[str, float]] = field(default_factory=dict)


Result = Chunk[Payload] | Finished[Payload] | Failed
Listener = Callable[[Result], None]


@dataclass(slots=True)
class _Request:
    """One request on its way through its chain of stages."""

    chain: tuple[str, ...]
    listener: Listener | None  # None once the session has its end: aborted, failed or finished
    marks: Marks
    live: set[str]  # stages that have not yet reported their end
    unwanted: set[str]  # of these, the ones whose results nobody takes any more: they were told to abort
    deadline: asyncio.TimerHandle  # until the session has its end
    settled: asyncio.Future[None]
    # One for each time that stages were told to abort.
    settling: list[asyncio.TimerHandle] = field(default_factory=list)


class Pipeline:
    """Routes requests through the stages of a pipeline file. All methods are for the event loop's thread.

    config: the pipeline. folder: private folder of the sockets, see `wire.runtime_folder`.
    settle_s: a worker that has not settled an abort for so long is ended.
    ledger_timeout_s: most that `resources` waits for a stage.
    """

    def __init__(
        self,
        config: PipelineConfig,
        folder: Path,
        settle_s: float = SETTLE_S,
        ledger_timeout_s: float = LEDGER_TIMEOUT_S,
    ) -> None:
        self._config = config
        self._settle_s = settle_s
        self._ledger_timeout_s = ledger_timeout_s
        self._contexts = Contexts()
        self._readers = asyncio.TaskGroup()
        self._links = {
            name: WorkerLink(name, stages, folder, self._receive, self._worker_changed)
            for name, stages in config.workers().items()
        }
        self._requests: dict[str, _Request] = {}
        self._inquiries: dict[str, asyncio.Future[Mapping[str, int]]] = {}
        self._numbers = itertools.count()
        self._ready_changed = asyncio.Event()

    async def __aenter__(self) -> "Pipeline":
        """Listen for the workers. They may start before or after."""
        await self._readers.__aenter__()
        for link in self._links.values():
            link.open(self._contexts, self._readers)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Drop every request and close the sockets; the workers end when this process does."""
        for request_id, request in list(self._requests.items()):
            self._tell(request, Failed(request_id, "the pipeline has stopped"))
            request.live.clear()
            self._settle(request_id, request)
        for link in self._links.values():
            link.close()
        await self._readers.__aexit__(None, None, None)
        self._contexts.close()

    def new_id(self) -> str:
        """A request id that was never used; all have the same length."""
        return f"{next(self._numbers):016x}"

    def submit(self, entry: str, request_id: str, payload: Payload, listener: Listener) -> Marks:
        """Begin a request at stage `entry`; its results reach `listener` from the last stage of its chain.

        The listener gets any number of Chunks, then one Finished or Failed; after `abort` it gets nothing.
        """
        chain = self._config.chain(entry)
        loop = asyncio.get_running_loop()
        deadline_s = self._config.session.request_deadline_s
        request = _Request(
            chain,
            listener,
            Marks(),
            set(chain),
            set(),
            loop.call_later(deadline_s, self._give_up, request_id, f"not done after {deadline_s:g} s"),
            loop.create_future(),
        )
        self._requests[request_id] = request
        for stage in reversed(chain):  # the last first: what the first brings finds the others open
            opening: Payload = payload if stage == entry else Opening()
            self._send(stage, NewRequest(request_id, opening))
        return request.marks

    def say(self, entry: str, request_id: str, text: str, listener: Listener) -> Marks:
        """Have a text of our own spoken; see `submit`. entry: a stage that takes clauses."""
        marks = self.submit(entry, request_id, Opening(), listener)
        for clause in clauses(text, self._config.text_settings):
            self._send(entry, StreamChunk(request_id, clause))
        self._send(entry, StreamDone(request_id))
        return marks

    def abort(self, request_id: str) -> asyncio.Future[None]:
        """Abort a request at every stage; the future is done when all have settled. Unknown ids are settled already."""
        request = self._requests.get(request_id)
        if request is None:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            done.set_result(None)
            return done
        request.deadline.cancel()
        request.listener = None
        self._abort_live(request_id, request)
        return request.settled

    def health(self) -> dict[str, str]:
        """Stage -> "ready" or "starting" (also after its worker has died, until the next one is warm)."""
        return {
            stage: "ready" if link.is_ready else "starting" for link in self._links.values() for stage in link.stages
        }

    async def wait_ready(self) -> None:
        while not all(link.is_ready for link in self._links.values()):
            self._ready_changed.clear()
            await self._ready_changed.wait()

    async def resources(self) -> dict[str, Any]:
        """What every stage holds, all together, and what every worker costs.

        A stage that does not answer in time is None, and missing in the totals.
        """
        async with asyncio.TaskGroup() as tasks:
            stages = {name: tasks.create_task(self._inquire(name)) for name in self._config.stages}
        held = {name: task.result() for name, task in stages.items()}
        totals: Counter[str] = Counter()
        for ledger in held.values():
            totals.update(ledger or {})
        return {
            "requests": len(self._requests),
            "stages": held,
            "totals": dict(totals),
            "workers": {name: link.facts() for name, link in self._links.items()},
        }

    async def _inquire(self, stage: str) -> Mapping[str, int] | None:
        if not self._link_of(stage).is_ready:
            return None
        request_id = self.new_id()
        answer: asyncio.Future[Mapping[str, int]] = asyncio.get_running_loop().create_future()
        self._inquiries[request_id] = answer
        self._send(stage, Inquire(request_id))
        try:
            async with asyncio.timeout(self._ledger_timeout_s):
                return await answer
        except TimeoutError:
            return None
        finally:
            del self._inquiries[request_id]

    # Results on their way from stage to stage

    def _receive(self, stage: str, message: Outbound[Payload]) -> None:
        if isinstance(message, Ledger):
            if (answer := self._inquiries.get(message.request_id)) is not None and not answer.done():
                answer.set_result(message.held)
            return
        request = self._requests.get(message.request_id)
        if request is None or stage not in request.live:
            return
        match message:
            case Chunk(request_id, item):
                self._pass_on(stage, request_id, request, item)
            case Finished(request_id, result, metrics):
                request.marks.metrics[stage] = metrics
                self._finish(stage, request_id, request, result)
            case Failed(request_id, error):
                self._lose(stage, request_id, request, error)
            case Aborted(request_id):
                self._lose(stage, request_id, request, "aborted, expected to finish")
            case _:
                assert_never(message)

    def _pass_on(self, stage: str, request_id: str, request: _Request, item: Payload) -> None:
        request.marks.first_s.setdefault(stage, time.monotonic())
        if request.listener is None:
            return
        following = self._config.stages[stage].next
        if following is None:
            self._call(request.listener, Chunk(request_id, item))
        elif following in request.live:
            self._send(following, StreamChunk(request_id, item))

    def _finish(self, stage: str, request_id: str, request: _Request, result: Payload | None) -> None:
        following = self._config.stages[stage].next
        if following is None:
            request.live.discard(stage)
            request.marks.first_s.setdefault(stage, time.monotonic())
            self._tell(request, Finished(request_id, result))
        else:
            if result is not None:
                self._pass_on(stage, request_id, request, result)
            request.live.discard(stage)
            if request.listener is not None and following in request.live:
                self._send(following, StreamDone(request_id))
        # A stage that ends before those that feed it wants no more from them: a stop string was met.
        self._abort_stages(request_id, request, request.chain[: request.chain.index(stage)])
        self._settle(request_id, request)

    def _lose(self, stage: str, request_id: str, request: _Request, error: str) -> None:
        """A stage has ended without a result: the request fails, unless nobody wanted one."""
        request.live.discard(stage)
        if stage in request.unwanted:
            self._settle(request_id, request)
            return
        logger.warning("request %s: stage %s: %s", request_id, stage, error)
        is_named = error.startswith(NAMED_ERRORS)  # other texts may hold paths of this machine
        self._fail(request_id, request, f"stage {stage}: {error if is_named else 'an internal error, see the log'}")

    def _fail(self, request_id: str, request: _Request, error: str) -> None:
        self._tell(request, Failed(request_id, error))
        self._abort_live(request_id, request)

    def _give_up(self, request_id: str, error: str) -> None:
        logger.warning("request %s: %s", request_id, error)
        self._fail(request_id, self._requests[request_id], error)

    def _abort_live(self, request_id: str, request: _Request) -> None:
        self._abort_stages(request_id, request, request.chain)
        self._settle(request_id, request)

    def _abort_stages(self, request_id: str, request: _Request, stages: tuple[str, ...]) -> None:
        told = [stage for stage in stages if stage in request.live and stage not in request.unwanted]
        if not told:
            return
        request.unwanted.update(told)
        for stage in told:
            self._send(stage, Abort(request_id))
        loop = asyncio.get_running_loop()
        request.settling.append(loop.call_later(self._settle_s, self._end_stuck_workers, request_id, told))

    def _end_stuck_workers(self, request_id: str, told: list[str]) -> None:
        """An abort that does not settle means a worker that hangs: it and what it holds can only be replaced."""
        live = self._requests[request_id].live
        for name in {self._config.stages[stage].worker for stage in told if stage in live}:
            logger.error("request %s: worker %s has not settled it after %g s", request_id, name, self._settle_s)
            self._links[name].kill()

    def _tell(self, request: _Request, ended: Finished[Payload] | Failed) -> None:
        request.deadline.cancel()
        listener, request.listener = request.listener, None
        if listener is not None:
            self._call(listener, ended)

    def _call(self, listener: Listener, message: Result) -> None:
        """Tell one session; its fault must not reach the others, which are read by the same task."""
        try:
            listener(message)
        except Exception:
            logger.exception("request %s: the session failed on a result", message.request_id)
            if (request := self._requests.get(message.request_id)) is not None and request.listener is not None:
                self._fail(message.request_id, request, "the session failed on a result")

    def _settle(self, request_id: str, request: _Request) -> None:
        """The one way out for a request: called whenever a stage has reported its end."""
        if request.live or self._requests.pop(request_id, None) is None:
            return
        for timer in request.settling:
            timer.cancel()
        if not request.settled.done():
            request.settled.set_result(None)

    # Workers

    def _link_of(self, stage: str) -> WorkerLink:
        return self._links[self._config.stages[stage].worker]

    def _send(self, stage: str, message: Sent[Payload]) -> None:
        """Send, or have the request fail: not at once, since the caller may still be opening it at its other stages."""
        try:
            self._link_of(stage).send(stage, message)
        except (QueueFullError, StageDiedError) as error:
            request = self._requests.get(message.request_id)
            if request is not None and stage in request.live:
                request.live.discard(stage)
                asyncio.get_running_loop().call_soon(self._fail_unsent, message.request_id, describe(error))

    def _fail_unsent(self, request_id: str, error: str) -> None:
        if (request := self._requests.get(request_id)) is not None:
            self._fail(request_id, request, error)

    def _worker_changed(self, link: WorkerLink) -> None:
        """A worker has become ready, or has ended: then what it held fails."""
        self._ready_changed.set()
        if link.is_ready:
            return
        error = describe(StageDiedError(f"worker {link.name} has ended"))
        for request_id, request in list(self._requests.items()):
            if request.live.intersection(link.stages):
                request.live.difference_update(link.stages)
                self._fail(request_id, request, error)
