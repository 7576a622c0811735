"""Code2WavScheduler: streaming, stateful computation. Codec codes become sound, many replies in one batch."""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, assert_never

import numpy as np
from numpy.typing import NDArray

from voice_runtime.errors import ConfigError, RequestError
from voice_runtime.schedulers.inbox import Inbox
from voice_runtime.schedulers.loop import Loop
from voice_runtime.schedulers.messages import (
    Abort,
    Aborted,
    Chunk,
    Ended,
    Failed,
    Finished,
    Inbound,
    Inquire,
    Ledger,
    NewRequest,
    Reject,
    StreamChunk,
    StreamDone,
    describe,
    until_first,
)
from voice_runtime.schedulers.outbox import Outbox

logger = logging.getLogger(__name__)
P = TypeVar("P")
R = TypeVar("R")
P_contra = TypeVar("P_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)

Codes = NDArray[np.int64]  # shape (frames, books)
Samples = NDArray[np.float32]  # mono
Rows = NDArray[np.bool_]  # one flag a row: which rows advance


class StreamingVocoder(Protocol):
    """A causal model of codes -> sound whose whole memory is an explicit state of a fixed number of rows.

    A row never reads another row. Rows outside the mask neither advance nor sound.

    books: codebooks a frame. codebook_size: codes of each book are 0 to that, exclusive.
    frame_samples: samples that a frame brings. delay_samples: how far the sound lags behind the codes; the first
        so many samples of a reply come before its beginning, and `flush` brings as many at its end.
    """

    books: int
    codebook_size: int
    frame_samples: int
    delay_samples: int

    def init_state(self, rows: int) -> Any:
        """State of `rows` replies, each at its beginning. Its size does not change."""

    def decode(self, state: Any, codes: NDArray[np.int64], mask: Rows) -> Samples:
        """codes: shape (rows, frames, books). Returns shape (rows, frames * frame_samples)."""

    def flush(self, state: Any, mask: Rows) -> Samples:
        """What is still inside once the last frame went in: shape (rows, delay_samples)."""

    def reset(self, state: Any, mask: Rows) -> None:
        """Back to the beginning of a reply."""


class Reply(Protocol[P_contra, R_co]):
    """One reply's adapters between payloads and arrays."""

    def codes(self, item: P_contra) -> Codes:
        """The frames that an item brings, shape (frames, books)."""

    def sound(self, samples: Samples, start: int) -> R_co:
        """What goes out for samples that begin `start` samples after the reply's beginning."""


@dataclass(frozen=True, slots=True)
class Code2WavSettings:
    """slots: most replies at once, the rows of the state.
    ramp: frames that a reply's first, second, ... decode takes; the last goes for all that follow. A small first one
        makes the first sound early, larger ones later cost less a frame. Each decode waits for its frames while the
        sound before it plays: doubling steps never run dry when codes come a little more than twice as fast as they
        are heard.
    most_frames: most frames of a reply that may wait to be decoded.

    Raises:
        ConfigError: a setting is not a whole number of at least 1.
    """

    slots: int = 8
    ramp: Sequence[int] = (2, 2, 4, 8)
    most_frames: int = 6_000

    def __post_init__(self) -> None:
        if not isinstance(self.ramp, list | tuple):
            raise ConfigError(f"ramp is {self.ramp!r}, expected whole numbers of at least 1")
        for name, values in {"slots": [self.slots], "ramp": self.ramp, "most_frames": [self.most_frames]}.items():
            if not values or any(type(value) is not int or value < 1 for value in values):
                raise ConfigError(f"{name} is {getattr(self, name)!r}, expected whole numbers of at least 1")
        if self.most_frames < max(self.ramp):
            raise ConfigError(f"most_frames is {self.most_frames}, expected at least the ramp's {max(self.ramp)}")


@dataclass(slots=True)
class _Speaking(Generic[P, R]):
    """One reply while it is spoken.

    slot: its row of the state. pending: frames that came and are not decoded yet, shape (frames, books).
    chunk: decodes begun so far. wanted: frames that its present decode still lacks. offset: samples decoded so far,
        counted from before the vocoder's delay: the causal offset. done: no more items will come.
    first_frames, compute_s: decoded, and spent on it, until its first sound; has_sounded: it was.
    """

    reply: Reply[P, R]
    slot: int
    pending: Codes
    wanted: int
    offset: int
    chunk: int = 0
    done: bool = False
    first_frames: int = 0
    compute_s: float = 0.0
    has_sounded: bool = False

    def ready_frames(self) -> int:
        """Frames that can be decoded now: the step of the ramp that it is in, or at the end what is left."""
        frames = len(self.pending)
        return min(frames, self.wanted) if self.done or frames >= self.wanted else 0

    def note(self, frames: int, seconds: float) -> None:
        """What the model has computed for it."""
        if not self.has_sounded:
            self.first_frames += frames
            self.compute_s += seconds

    def metrics(self) -> dict[str, float]:
        """`first_items`: frames that its first sound took, since they come one by one."""
        if not self.has_sounded:
            return {}
        return until_first(self.first_frames, self.compute_s)


class Code2WavScheduler(Generic[P, R]):
    """Decodes all replies that have work in one batch, each from where it is, on one thread.

    vocoder: see StreamingVocoder.
    open_fn: payload -> Reply.
    limit: most messages in the inbox.
    """

    def __init__(
        self,
        vocoder: StreamingVocoder,
        open_fn: Callable[[Any], Reply[P, R]],
        settings: Code2WavSettings | None = None,
        limit: int = 10_000,
    ) -> None:
        self.inbox: Inbox[P] = Inbox(limit)
        self.outbox: Outbox[R] = Outbox()
        self._vocoder = vocoder
        self._open_fn = open_fn
        self._settings = settings or Code2WavSettings()
        self._state = vocoder.init_state(self._settings.slots)
        self._free = list(range(self._settings.slots))
        self._speaking: dict[str, _Speaking[P, R]] = {}
        self._loop = Loop("code2wav-scheduler", (self.inbox, self.outbox), self.step, self._end)

    def start(self) -> None:
        self._loop.start()

    def stop(self) -> None:
        self._loop.stop()

    def abort(self, request_id: str) -> None:
        self.inbox.abort(request_id)

    def step(self) -> None:
        """One round: take what has arrived, then decode one batch of what is ready.

        Blocks until there is something to do. Called by the scheduler's own thread (and by tests without one).
        """
        message = self.inbox.take(timeout_s=0 if self._ready() else None)
        while message is not None:
            self._handle(message[0])
            message = self.inbox.take(timeout_s=0)
        if ready := self._ready():
            self._decode(ready)

    def _handle(self, message: Inbound[P]) -> None:
        match message:
            case NewRequest(request_id, payload):
                self._guard(request_id, lambda: self._begin(request_id, payload))
            case StreamChunk(request_id, item):
                self._guard(request_id, lambda: self._accumulate(self._speaking[request_id], item))
            case StreamDone(request_id):
                self._speaking[request_id].done = True
                self._finish_if_spoken([request_id])
            case Abort(request_id):
                self._end(Aborted(request_id))
            case Reject(request_id, error):
                self._end(Failed(request_id, error))
            case Inquire(request_id):
                self.outbox.put(Ledger(request_id, self._held()))
            case _:
                assert_never(message)

    def _guard(self, request_id: str, act: Callable[[], None]) -> None:
        """What a message of one request can do wrong costs that request alone."""
        try:
            act()
        except Exception as error:
            self._end(Failed(request_id, describe(error)))

    def _begin(self, request_id: str, payload: Any) -> None:
        if not self._free:
            raise RequestError(f"{len(self._speaking)} replies are being spoken, limit {self._settings.slots}")
        reply = self._open_fn(payload)
        self._speaking[request_id] = _Speaking(
            reply,
            slot=self._free.pop(),
            pending=np.empty((0, self._vocoder.books), np.int64),
            wanted=self._settings.ramp[0],
            offset=-self._vocoder.delay_samples,
        )

    def _accumulate(self, speaking: _Speaking[P, R], item: P) -> None:
        if speaking.done:
            raise RequestError("codes came after the end of their reply")
        codes = speaking.reply.codes(item)
        vocoder = self._vocoder
        if codes.dtype.kind not in "iu":
            raise RequestError(f"codes are {codes.dtype}, expected whole numbers")
        if codes.ndim != 2 or codes.shape[1] != vocoder.books:
            raise RequestError(f"codes have shape {codes.shape}, expected (frames, {vocoder.books})")
        if codes.size and not 0 <= codes.min() <= codes.max() < vocoder.codebook_size:
            raise RequestError(
                f"codes go from {codes.min()} to {codes.max()}, expected 0 to {vocoder.codebook_size - 1}"
            )
        waiting = len(speaking.pending) + len(codes)
        if waiting > self._settings.most_frames:
            raise RequestError(f"{waiting} frames wait to be decoded, limit {self._settings.most_frames}")
        speaking.pending = np.concatenate([speaking.pending, codes])

    def _ready(self) -> dict[str, int]:
        """Frames that each request could have decoded now; none without any."""
        frames = {request_id: speaking.ready_frames() for request_id, speaking in self._speaking.items()}
        return {request_id: ready for request_id, ready in frames.items() if ready}

    def _decode(self, ready: dict[str, int]) -> None:
        """Decode as many frames of every ready request as the one with the fewest has: rows of one length, no padding.

        A request whose decode takes more stays ready, and its next batch follows at once.
        """
        frames = min(ready.values())
        batch = {request_id: self._speaking[request_id] for request_id in ready}
        codes = np.zeros((self._settings.slots, frames, self._vocoder.books), np.int64)
        for speaking in batch.values():
            codes[speaking.slot] = speaking.pending[:frames]
            speaking.pending = speaking.pending[frames:]
        sound = self._compute(batch, frames, lambda mask: self._vocoder.decode(self._state, codes, mask))
        if sound is None:
            return
        for request_id, speaking in batch.items():
            self._advance(speaking, frames)
            self._emit(request_id, speaking, sound[speaking.slot])
        self._finish_if_spoken(batch)

    def _compute(
        self, batch: dict[str, _Speaking[P, R]], frames: int, model: Callable[[Rows], Samples]
    ) -> Samples | None:
        """What the model makes of the batch's rows; None when it cannot, which fails these requests alone."""
        began_s = time.perf_counter()
        try:
            sound = model(self._mask(batch.values()))
        except Exception as error:
            logger.exception("a batch of %s cannot be computed", len(batch))
            for request_id in batch:
                self._end(Failed(request_id, describe(error)))
            return None
        took_s = time.perf_counter() - began_s
        for speaking in batch.values():
            speaking.note(frames, took_s)
        return sound

    def _advance(self, speaking: _Speaking[P, R], frames: int) -> None:
        speaking.wanted -= frames
        if speaking.wanted == 0:
            speaking.chunk += 1
            speaking.wanted = self._settings.ramp[min(speaking.chunk, len(self._settings.ramp) - 1)]

    def _emit(self, request_id: str, speaking: _Speaking[P, R], samples: Samples) -> None:
        """Send what lies after the reply's beginning, and move the causal offset on."""
        start = speaking.offset
        speaking.offset += len(samples)
        heard = samples[max(0, -start) :]
        if len(heard):
            speaking.has_sounded = True
            self._guard(
                request_id, lambda: self.outbox.put(Chunk(request_id, speaking.reply.sound(heard, max(0, start))))
            )

    def _finish_if_spoken(self, request_ids: Iterable[str]) -> None:
        """Flush and end every one of these requests that is done and has nothing left to decode."""
        spoken = {
            request_id: speaking
            for request_id in request_ids
            if (speaking := self._speaking.get(request_id)) is not None and speaking.done and not len(speaking.pending)
        }
        if not spoken:
            return
        tails = self._compute(spoken, 0, lambda mask: self._vocoder.flush(self._state, mask))
        if tails is None:
            return
        for request_id, speaking in spoken.items():
            self._emit(request_id, speaking, tails[speaking.slot])
            if request_id in self._speaking:
                self._end(Finished(request_id, metrics=speaking.metrics()))

    def _mask(self, speaking: Iterable[_Speaking[P, R]]) -> Rows:
        mask = np.zeros(self._settings.slots, np.bool_)
        mask[[one.slot for one in speaking]] = True
        return mask

    def _end(self, ended: Ended[R]) -> None:
        """The one way out for a request: finished, failed and aborted all pass here."""
        speaking = self._speaking.pop(ended.request_id, None)
        self.inbox.settle(ended.request_id)
        self.outbox.put(ended)
        if speaking is not None:
            self._vocoder.reset(self._state, self._mask([speaking]))
            self._free.append(speaking.slot)

    def _held(self) -> dict[str, int]:
        return {
            **self.inbox.held(),
            "vocoder_slots": len(self._speaking),
            "vocoder_frames": sum(len(speaking.pending) for speaking in self._speaking.values()),
        }
