"""One conversation: the caller's events in, the agent's events and paced audio out.

Owns no socket and no task. The transport gives it `receive`, polls `next_output` and sleeps `wait_s`, or until `wake`.
"""

import asyncio
import itertools
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol, assert_never

from voice_runtime.audio.pcm import Samples
from voice_runtime.pipeline.config import SessionSettings
from voice_runtime.pipeline.runtime import Listener, Marks, Result
from voice_runtime.schedulers.messages import Chunk, Failed, Finished
from voice_runtime.session.events import (
    CallerAudio,
    CallEvent,
    Flush,
    Interrupt,
    Played,
    ReplyDone,
    ReplyStarted,
    ReplyText,
    SessionError,
    SessionEvent,
    SpeechStarted,
    SpeechStopped,
    Timing,
    TranscriptReady,
    TypedText,
)
from voice_runtime.session.hearing import Hearing, VoiceDetector
from voice_runtime.session.history import History
from voice_runtime.session.playout import Playout
from voice_runtime.session.reply import Reply
from voice_runtime.session.turn import Effect, Input, State, TurnMachine
from voice_runtime.stages.payloads import Heard, Payload, SpokenClause, Transcript, TurnEnd, Utterance

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AgentAudio:
    """One frame for the client. epoch: compare with the session's at the last hop."""

    epoch: int
    pcm: bytes


class Stages(Protocol):
    """What a session needs of a pipeline. See `Pipeline`, which is one."""

    def new_id(self) -> str: ...

    def submit(self, entry: str, request_id: str, payload: Payload, listener: Listener) -> Marks: ...

    def abort(self, request_id: str) -> object: ...


class Session:
    """A caller's conversation with the pipeline. All methods are for the event loop's thread.

    input_hz, output_hz: rates of the client's and the agent's audio.
    vad: this caller's voice detector.
    on_reply_done: called with each reply that ends and, if any of it was heard, where its time went; for metrics.
    clock: seconds, by the clock of the pipeline's marks.
    """

    def __init__(  # noqa: PLR0913 - six parts and the clock, which only tests replace
        self,
        pipeline: Stages,
        settings: SessionSettings,
        vad: VoiceDetector,
        input_hz: int,
        output_hz: int,
        on_reply_done: Callable[[ReplyDone, Timing | None], None] = lambda done, timing: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.wake = asyncio.Event()
        self.epoch = 0
        self._pipeline = pipeline
        self._settings = settings
        self._output_hz = output_hz
        self._on_reply_done = on_reply_done
        self._clock = clock
        self._machine = TurnMachine()
        self._hearing = Hearing(settings.turn, vad, input_hz)
        self._history = History(settings.history_turns)
        self._typed = ""
        self._recognition = ""  # id of the recogniser's last request
        self._requests: set[str] = set()
        self._reply: Reply | None = None
        self._outputs: deque[SessionEvent] = deque()
        self._numbers = itertools.count(1)
        self._last_audio_s = 0.0
        self._turn_ms: dict[str, float] = {}  # stage -> ms of the present turn, up to the thinker

    @property
    def state(self) -> State:
        return self._machine.state

    # Towards the agent

    def receive(self, event: CallEvent) -> None:
        """Take what the client sent."""
        match event:
            case CallerAudio(samples):
                self._hear(samples)
            case Played(reply, ms):
                if self._reply is not None and self._reply.id == reply:
                    self._reply.playout.reported(ms, self._clock())
            case Interrupt():
                if not self._hearing.activity.in_turn:  # who is still speaking is heard whole
                    self._hearing.recognised()
                self._apply(Input.INTERRUPT)
            case TypedText(text):
                self._hearing.recognised()
                self._typed = text
                self._apply(Input.TYPED)
            case _:
                assert_never(event)

    def tell(self, event: SessionEvent) -> None:
        """Put an event of the transport's own into the order of what the client gets."""
        self._emit(event)

    def close(self) -> None:
        """The connection is gone: everything of this caller is aborted."""
        self._apply(Input.CLOSE)

    # Towards the client

    def next_output(self) -> SessionEvent | AgentAudio | None:
        """The next thing to send, in order; None when there is nothing yet."""
        now_s = self._clock()
        self._check_clock(now_s)
        if self._outputs:
            return self._outputs.popleft()
        reply = self._reply
        if reply is None or (frame := reply.next_frame(now_s)) is None:
            return None
        return AgentAudio(reply.playout.epoch, frame)

    def wait_s(self) -> float:
        """Seconds until `next_output` may have something without a wake-up; inf when only an event can bring it."""
        now_s = self._clock()
        wait_s = self._reply.playout.wait_s(now_s) if self._reply is not None else float("inf")
        if self._hearing.activity.in_turn:
            wait_s = min(wait_s, max(0.0, self._last_audio_s + self._settings.turn.stalled_s - now_s))
        return wait_s

    # The caller's audio

    def _hear(self, samples: Samples) -> None:
        self._last_audio_s = self._clock()
        for frame in self._hearing.frames(samples):
            inputs = self._hearing.push(frame, agent_speaks=self.state in (State.THINKING, State.SPEAKING))
            if (pause := self._hearing.pause()) is not None and self._settings.judge_turn is not None:
                self._ask_turn_end(self._settings.judge_turn, *pause)
            for given in inputs:
                self._apply(given)

    def _ask_turn_end(self, stage: str, pause: int, pcm: bytes) -> None:
        def judged(result: Result) -> None:
            self._requests.discard(result.request_id)
            if isinstance(result, Finished) and isinstance(result.result, TurnEnd):
                for given in self._hearing.judged(pause, result.result.probability):
                    self._apply(given)

        self._submit(stage, Heard(pcm), judged)

    # The turn machine's effects

    def _apply(self, given: Input) -> None:
        for effect in self._machine.on(given):
            self._effects[effect](self)

    def _caller_started(self) -> None:
        self._emit(SpeechStarted())

    def _caller_stopped(self) -> None:
        self._emit(SpeechStopped())

    def _drop_heard(self) -> None:
        self._hearing.drop()

    def _abort_reply(self) -> None:
        """One transaction: raise the epoch, abort every stage, tell the client to drop what it has buffered."""
        self.epoch += 1
        kept = self._recognition_kept()
        for request_id in self._requests - kept:
            self._pipeline.abort(request_id)
        self._requests = kept
        reply = self._reply
        if reply is not None:
            self._emit(Flush(reply.id))
            self._end_reply(reply, ReplyDone(reply.id, "interrupted"))

    def _recognition_kept(self) -> set[str]:
        """The recogniser's request when the caller goes on after so long a turn that both would be too long together.

        Its words then become the beginning of what is said now; of a short turn the sound is kept, not the request.
        """
        if self.state is not State.HEARING or not self._hearing.holds_long_turn:
            return set()
        self._hearing.recognised()
        return self._requests & {self._recognition}

    def _recognise(self) -> None:
        over_s, epoch = self._clock(), self.epoch
        self._turn_ms = {"end_of_turn": float(self._hearing.activity.silence_ms)}
        utterance = Utterance(self._hearing.take_turn())

        def recognised(result: Result) -> None:
            self._requests.discard(result.request_id)
            if self.epoch != epoch:
                self._join(result)
                return
            self._hearing.recognised()
            self._turn_ms[self._settings.recognise] = (self._clock() - over_s) * 1000
            if isinstance(result, Finished) and isinstance(result.result, Transcript):
                self._answer_spoken(result.result.text)
            else:
                self._emit(SessionError("stage_failed", str(getattr(result, "error", result))))
                self._apply(Input.REPLY_OVER)

        self._recognition = self._submit(self._settings.recognise, utterance, recognised)

    def _join(self, result: Result) -> None:
        """Words of a turn that has gone on since: they stay unanswered until the caller has finished."""
        if isinstance(result, Finished) and isinstance(result.result, Transcript) and _has_words(result.result.text):
            self._emit(TranscriptReady(result.result.text))
            self._history.add_caller(result.result.text)

    def _answer_spoken(self, text: str) -> None:
        if not _has_words(text):
            self._apply(Input.REPLY_OVER)
            return
        self._emit(TranscriptReady(text))
        self._answer(text)

    def _answer_typed(self) -> None:
        self._turn_ms = {}
        self._answer(self._typed)

    def _answer(self, text: str) -> None:
        self._history.add_caller(text)
        epoch = self.epoch
        playout = Playout(f"r{next(self._numbers)}", epoch, self._output_hz, self._settings.lead_ms)
        reply = Reply(self._pipeline.new_id(), playout, self._turn_ms, self._clock())
        self._reply = reply
        self._emit(ReplyStarted(reply.id))

        def answered(result: Result) -> None:
            if self.epoch == epoch:
                self._take_reply(reply, result)

        self._requests.add(reply.request_id)
        reply.marks = self._pipeline.submit(self._settings.reply, reply.request_id, self._history.prompt(), answered)

    def _take_reply(self, reply: Reply, result: Result) -> None:
        match result:
            case Chunk(_, SpokenClause() as clause):
                self._take_clause(reply, clause)
            case Finished():
                self._requests.discard(reply.request_id)
                reply.complete()
            case Failed(_, error):
                self._requests.discard(reply.request_id)
                self.epoch += 1
                self._emit(SessionError("stage_failed", error))
                self._end_reply(reply, ReplyDone(reply.id, "failed"))
                self._apply(Input.REPLY_OVER)
            case _:
                raise TypeError(f"the reply brought {type(result.item).__name__}, expected SpokenClause")
        self.wake.set()

    def _take_clause(self, reply: Reply, clause: SpokenClause) -> None:
        has_sound = reply.add(clause)
        if clause.text:
            self._emit(ReplyText(reply.id, clause.text))
        if has_sound:
            self._apply(Input.REPLY_SOUND)
        if reply.playout.appended_s > self._settings.longest_reply_s:
            logger.warning("request %s: reply cut at %.0f s", reply.request_id, reply.playout.appended_s)
            self._pipeline.abort(reply.request_id)
            self._requests.discard(reply.request_id)
            reply.complete()

    # Ends

    def _check_clock(self, now_s: float) -> None:
        """What time alone brings: a reply played to its end, a client that sends no audio any more."""
        reply = self._reply
        if reply is not None and reply.playout.is_over(now_s):
            self._end_reply(reply, ReplyDone(reply.id, "completed"))
            self._apply(Input.REPLY_OVER)
        if self._hearing.activity.in_turn and now_s >= self._last_audio_s + self._settings.turn.stalled_s:
            for given in self._hearing.activity.stalled():
                self._apply(given)

    def _end_reply(self, reply: Reply, done: ReplyDone) -> None:
        """The one way out for a reply: played, cut and failed all pass here."""
        self._reply = None
        self._history.add_agent(reply.playout.heard_text(self._clock()))
        timing = reply.timing(self._settings.reply)
        if timing is not None:
            self._emit(timing)
        self._on_reply_done(done, timing)
        self._emit(done)

    def _submit(self, stage: str, payload: Payload, listener: Callable[[Result], None]) -> str:
        request_id = self._pipeline.new_id()
        self._requests.add(request_id)
        self._pipeline.submit(stage, request_id, payload, listener)
        return request_id

    def _emit(self, event: SessionEvent) -> None:
        self._outputs.append(event)
        self.wake.set()

    _effects: ClassVar[dict[Effect, Callable[["Session"], None]]] = {
        Effect.CALLER_STARTED: _caller_started,
        Effect.CALLER_STOPPED: _caller_stopped,
        Effect.ABORT_REPLY: _abort_reply,
        Effect.RECOGNISE: _recognise,
        Effect.ANSWER_TYPED: _answer_typed,
        Effect.DROP_HEARD: _drop_heard,
    }


def _has_words(text: str) -> bool:
    return any(letter.isalnum() for letter in text)
