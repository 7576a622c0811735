"""One conversation: the caller's events in, the agent's events and paced audio out.

Owns no socket and no task. The transport gives it `receive`, polls `next_output` and sleeps `wait_s`, or until `wake`.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import ClassVar, assert_never

import msgspec

from voice_runtime.audio.pcm import Samples
from voice_runtime.pipeline.config import SessionSettings
from voice_runtime.pipeline.runtime import Marks
from voice_runtime.session import events, phrases
from voice_runtime.session.agent import Agent, Stages
from voice_runtime.session.events import AgentAudio, CallEvent, ReplyDone, SessionEvent, Timing
from voice_runtime.session.hearing import Hearing, VoiceDetector
from voice_runtime.session.history import History, Memory
from voice_runtime.session.overlap import Overlap
from voice_runtime.session.recognition import Recognition, TurnEndJudge, Words
from voice_runtime.session.recording import Recorder
from voice_runtime.session.reply import Spent
from voice_runtime.session.settings import configured
from voice_runtime.session.timeline import Timeline
from voice_runtime.session.turn import Effect, Input, State, TurnMachine
from voice_runtime.session.unasked import GREET_AFTER_S, Unasked

PLAYED_AHEAD_MS = 100  # a client may play earlier than its reports tell


class Session:
    """A caller's conversation with the pipeline. All methods are for the event loop's thread.

    input_hz, output_hz: rates of the client's and the agent's audio. vad: this caller's voice detector.
    on_reply_done: called with each reply that ends and, if any of it was heard, where its time went; for metrics.
    clock: seconds, by the clock of the pipeline's marks.
    memory: of the session that this one goes on with. recorder: keeps both voices and the timeline.
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
        memory: Memory | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        # How far ahead sound is sent is a matter of the line, which may be another one now.
        settings = settings if memory is None else msgspec.structs.replace(memory.settings, lead_ms=settings.lead_ms)
        self.wake = asyncio.Event()
        self.timeline = Timeline(clock, None if recorder is None else recorder.event)
        self._clock = clock
        self._machine = TurnMachine()
        tap = None if recorder is None else recorder.push
        self._hearing = Hearing(settings.turn, vad, input_hz, output_hz, tap)
        self._history = History(settings.history_turns, [] if memory is None else list(memory.messages))
        self._agent = Agent(
            pipeline, settings, self._history, output_hz, clock, self._emit, self._apply, self._reply_done
        )
        if memory is not None:
            self._agent.last_answer = memory.last_answer
        self._on_reply_done = on_reply_done
        self._unasked = Unasked(None if memory is not None else clock() + GREET_AFTER_S, clock())
        self._own_text = ""  # what the agent is to say unasked
        self._typed = ""
        self._turn = Recognition(pipeline, settings.recognise, clock)
        over_reply = Recognition(pipeline, settings.recognise, clock)
        self._overlap = Overlap(over_reply, self._hearing, self._agent, self._apply, self.timeline.note)
        self._joining = Recognition(pipeline, settings.recognise, clock)  # a long turn that went on after its end
        self._turn_end = TurnEndJudge(pipeline, settings.judge_turn)
        self._outputs: deque[SessionEvent] = deque()
        self._last_audio_s = 0.0

    @property
    def state(self) -> State:
        return self._machine.state

    @property
    def epoch(self) -> int:
        return self._agent.epoch

    @property
    def heard_ms(self) -> float:
        """Of the present reply, as far as is known; it stands still while the reply is held."""
        return self._agent.heard_ms

    @property
    def memory(self) -> Memory:
        return Memory(self._history.messages, self._settings, self._agent.last_answer)

    @property
    def _settings(self) -> SessionSettings:
        return self._agent.settings

    # Towards the agent

    def receive(self, event: CallEvent) -> None:
        """Take what the client sent.

        Raises PeerError: bad_event, settings that do not fit.
        """
        if self.state is State.CLOSED:  # the agent has hung up
            return
        match event:
            case events.CallerAudio(samples):
                self._hear(samples)
            case events.Played(reply, ms):
                self._agent.reported(reply, ms)
            case events.Digit() if not self._settings.turn.digits_interrupt:
                self.timeline.note("digit")  # not which: it may be one of a PIN
            case events.Interrupt() | events.Digit():
                if not self._hearing.activity.in_turn:  # who is still speaking is heard whole
                    self._hearing.recognised()
                self._apply(Input.INTERRUPT)
            case events.TypedText(text):
                self._hearing.recognised()
                self._typed = text
                self._apply(Input.TYPED)
            case events.Configure():
                self._configure(event)
            case _:
                assert_never(event)
        self.wake.set()

    def tell(self, event: SessionEvent) -> None:
        """Put an event of the transport's own into the order of what the client gets."""
        self._emit(event)

    def close(self) -> None:
        """The connection is gone: everything of this caller is aborted."""
        if self.state is not State.CLOSED:
            self._apply(Input.CLOSE)
        self._drop_heard()

    def _configure(self, event: events.Configure) -> None:
        settings = configured(self._settings, event.changes)
        self._hearing.configure(settings.turn)
        self._agent.settings = settings
        if event.timeline is not None:
            self.timeline.is_wanted = event.timeline
        if self._unasked.greet_s is not None:
            self._unasked.greet_s = self._clock()

    # Towards the client

    def next_output(self) -> SessionEvent | AgentAudio | None:
        """The next thing to send, in order; None when there is nothing yet."""
        self._check_clock()
        if not self._outputs:
            self._agent.tell_captions()
        if self._outputs:
            return self._outputs.popleft()
        frame = self._agent.next_frame()
        return None if frame is None else AgentAudio(*frame)

    def wait_s(self) -> float:
        """Seconds until `next_output` may have something without a wake-up; inf when only an event can bring it."""
        due_s = self._unasked.due_s(self._settings) if self.state is State.LISTENING else self._overlap.due_s()
        if self._hearing.activity.in_turn:
            due_s = min(due_s, self._last_audio_s + self._settings.turn.stalled_s)
        return max(0.0, min(self._agent.wait_s(), due_s - self._clock()))

    def _check_clock(self) -> None:
        """What time alone brings: a reply played to its end, a client that sends no audio any more, nobody there."""
        now_s = self._clock()
        self._agent.check_played()
        if self._hearing.activity.in_turn and now_s >= self._last_audio_s + self._settings.turn.stalled_s:
            self._apply_heard(self._hearing.activity.stalled())
        if self.state is State.HELD:
            self._overlap.check(now_s)
        elif self.state is State.LISTENING and (unasked := self._unasked.take(self._settings, now_s)) is not None:
            self._own_text, given = unasked
            self._apply(given)

    # The caller's audio

    def _hear(self, samples: Samples) -> None:
        self._last_audio_s = self._clock()
        for frame in self._hearing.frames(samples):
            inputs = self._hearing.push(frame, self._agent.take_played(PLAYED_AHEAD_MS), self.state)
            self._judge_turn_end()
            self._apply_heard(inputs)
            if self.state is State.HELD and self._hearing.activity.in_turn:
                self._overlap.listen()

    def _apply_heard(self, inputs: list[Input]) -> None:
        for given in inputs:
            self._apply(given)

    def _judge_turn_end(self) -> None:
        """Ask Smart Turn, in the one frame of a pause in which it should be asked."""

        def judged(probability: float) -> None:
            self.timeline.note("turn_end", probability=round(probability, 3))
            self._apply_heard(self._hearing.judged(pause, probability))

        if (asked := self._hearing.pause()) is not None:
            pause, pcm = asked
            self._turn_end.ask(pcm, judged)

    # The turn machine's effects

    def _follow_caller(self) -> None:
        """The caller has got the floor while speaking over a reply, and may have fallen silent since."""
        activity = self._hearing.activity
        if not activity.in_turn:
            self._apply(Input.TURN_OVER)
        elif activity.silence_ms:
            self._apply(Input.SILENCE)
            if activity.silence_ms >= self._settings.turn.draft_silence_ms:
                self._apply(Input.PAUSE)
        self._overlap.drop()

    def _apply(self, given: Input) -> None:
        before = self.state
        for effect in self._machine.on(given):
            self._effects[effect](self)
        self.timeline.note(given.name.lower(), state=self.state.name.lower())
        if given in (Input.YIELD, Input.TYPED, Input.INTERRUPT):
            self._unasked.heard(self._clock())
        if before is State.HELD and self.state is State.HEARING:
            self._follow_caller()
        self.wake.set()

    def _drop_heard(self) -> None:
        self._turn.drop()
        self._overlap.drop()
        self._joining.drop()
        self._turn_end.drop()
        self._hearing.drop()

    def _drop_overlap(self) -> None:
        self._overlap.drop()
        self._turn_end.drop()
        self._hearing.drop_overlap()

    def _abort_reply(self) -> None:
        """One transaction: raise the epoch, abort every stage, tell the client to drop what it has buffered."""
        self._agent.abort()
        if self.state is State.HEARING and self._turn.words is not None and self._hearing.holds_long_turn:
            # Both would be too long together: the words of the first become the beginning of what is said now.
            self._hearing.recognised()
            self._joining, self._turn = self._turn, self._joining
            self._joining.then = self._join
        self._turn.drop()

    def _join(self, words: Words) -> None:
        """Words of a turn that has gone on since: they stay unanswered until the caller has finished."""
        self._joining.drop()
        if phrases.has_words(words.text or ""):
            self._emit(events.TranscriptReady(words.text or ""))
            self._history.add_caller(words.text or "")

    # The caller's words

    def _draft(self) -> None:
        if not self._settings.turn.draft:
            return
        if (judged := self._overlap.take_words()) is not None:
            self._turn.words = judged
            self._turn_read(judged)
            return
        activity = self._hearing.activity
        activity.awaits_words = True
        self._turn.start(self._hearing.turn_so_far(), activity.voiced_ms, activity.silence_ms, self._turn_read)

    def _drop_draft(self) -> None:
        self._turn.drop()
        self._agent.drop_draft()

    def _answer(self) -> None:
        """The turn is over: its words are known, are being recognised, or are now."""
        activity = self._hearing.activity
        if not self._turn.covers(activity.voiced_ms):
            self._drop_draft()
            self._turn.start(self._hearing.turn_so_far(), activity.voiced_ms, activity.silence_ms, self._turn_read)
        words = self._turn.words
        assert words is not None
        words.turn_is_over = True
        self._turn_end.drop()
        self._hearing.take_turn()
        if words.text is not None:
            self._answer_words(words)

    def _turn_read(self, words: Words) -> None:
        """The words until a pause are known: the reply to them is begun, unless they want more."""
        text = words.text or ""
        if words.error is not None:
            self._emit(events.SessionError("stage_failed", words.error))
        if words.turn_is_over:
            self._answer_words(words)
            return
        unfinished = phrases.is_unfinished(text)
        if phrases.has_words(text):
            self._emit(events.TranscriptReady(text, is_final=False))
            if not unfinished and not phrases.asks_to_repeat(text):
                self._agent.draft(text, words.spent)
        self._apply_heard(self._hearing.activity.read(unfinished=unfinished))

    def _answer_words(self, words: Words) -> None:
        self._turn.drop()
        self._hearing.recognised()
        text = words.text or ""
        if not phrases.has_words(text):
            self._agent.drop_draft()
            self._apply(Input.REPLY_OVER)
            return
        self._unasked.heard(self._clock())
        self._emit(events.TranscriptReady(text))
        self._reply_to(text, words.spent)
        if self.state is State.HELD:  # the caller makes a sound again
            self._agent.hold()

    def _reply_to(self, text: str, before: Spent) -> None:
        if not (phrases.asks_to_repeat(text) and self._agent.repeat(text)):
            self._agent.answer(text, before)

    def _hold(self) -> None:
        self._overlap.begin(self._clock())
        self._agent.hold()

    def _reply_done(self, done: ReplyDone, timing: Timing | None, marks: Marks) -> None:
        self._unasked.quiet_since_s = self._clock()
        for stage, first_s in marks.first_s.items():
            self.timeline.note(stage, first_s, reply=done.reply)
        self._on_reply_done(done, timing)

    def _emit(self, event: SessionEvent) -> None:
        self.timeline.note_event(event)
        self._outputs.append(event)
        if isinstance(event, ReplyDone) and self.timeline.is_wanted:
            self._outputs.append(self.timeline.take())
        self.wake.set()

    _effects: ClassVar[dict[Effect, Callable[["Session"], None]]] = {
        Effect.CALLER_STARTED: lambda self: self._emit(events.SpeechStarted()),
        Effect.CALLER_STOPPED: lambda self: self._emit(events.SpeechStopped()),
        Effect.DRAFT: _draft,
        Effect.DROP_DRAFT: _drop_draft,
        Effect.HOLD: _hold,
        Effect.RESUME: lambda self: self._agent.resume(),
        Effect.JUDGE: lambda self: self._overlap.judge(),
        Effect.ABORT_REPLY: _abort_reply,
        Effect.ANSWER: _answer,
        Effect.ANSWER_TYPED: lambda self: self._reply_to(self._typed, Spent(self._clock())),
        Effect.SAY: lambda self: self._agent.say(self._own_text),
        Effect.DROP_HEARD: _drop_heard,
        Effect.DROP_OVERLAP: _drop_overlap,
        Effect.HANG_UP: lambda self: self._emit(events.Closing("idle")),
    }
