"""The agent's side of a session: makes replies, drafts them, plays, holds and cuts them."""

import itertools
import logging
from collections.abc import Callable
from typing import Protocol

from voice_runtime.pipeline.config import SessionSettings
from voice_runtime.pipeline.runtime import Listener, Marks, Result
from voice_runtime.schedulers.messages import Chunk, Failed, Finished
from voice_runtime.session.events import (
    Flush,
    Pause,
    ReplyDone,
    ReplyStarted,
    ReplyText,
    Resume,
    SessionError,
    SessionEvent,
    Timing,
)
from voice_runtime.session.history import History
from voice_runtime.session.playout import Playout
from voice_runtime.session.reply import Reply, Spent
from voice_runtime.session.turn import Input
from voice_runtime.stages.payloads import Payload, Prompt, SpokenClause

logger = logging.getLogger(__name__)


class Stages(Protocol):
    """What a session needs of a pipeline. See `Pipeline`, which is one."""

    def new_id(self) -> str: ...

    def submit(self, entry: str, request_id: str, payload: Payload, listener: Listener) -> Marks: ...

    def say(self, entry: str, request_id: str, text: str, listener: Listener) -> Marks: ...

    def abort(self, request_id: str) -> object: ...


class Agent:
    """Sans-IO but for the pipeline; see `Session`, whose parts its arguments are.

    emit: what the client is told. apply: what the turn machine is told.
    on_reply_done: called with each reply that ends, with where its time went if it answers speech and any of it was
        heard, and with its stages' marks.
    """

    def __init__(  # noqa: PLR0913 - the session's parts, which it shares with nobody else
        self,
        pipeline: Stages,
        settings: SessionSettings,
        history: History,
        output_hz: int,
        clock: Callable[[], float],
        emit: Callable[[SessionEvent], None],
        apply: Callable[[Input], None],
        on_reply_done: Callable[[ReplyDone, Timing | None, Marks], None],
    ) -> None:
        self.settings = settings
        self.epoch = 0
        self.reply: Reply | None = None
        self._draft: Reply | None = None
        self.last_answer = ""  # to the caller's words, as far as it was made
        self._pipeline = pipeline
        self._history = history
        self._output_hz = output_hz
        self._clock = clock
        self._emit = emit
        self._apply = apply
        self._on_reply_done = on_reply_done
        self._numbers = itertools.count(1)

    # Making replies

    def draft(self, text: str, before: Spent) -> None:
        """Begin a reply to `text` that nobody hears of until `answer` is called with the same text."""
        self.drop_draft()
        self._draft = self._asked(text, before)

    def drop_draft(self) -> None:
        if self._draft is not None:
            self._pipeline.abort(self._draft.request_id)
            self._draft = None

    def answer(self, text: str, before: Spent) -> None:
        """Reply to the caller: by the draft, if it answers the same words."""
        if self._draft is None or self._draft.answers != text:
            self.drop_draft()
            self._draft = self._asked(text, before)
        reply, self._draft = self._draft, None
        self._history.add_caller(text)
        self._begin(reply)

    def say(self, text: str, caller: str = "") -> None:
        """Say a text of the agent's own. caller: the words that it answers, if any."""
        self.drop_draft()
        if caller:
            self._history.add_caller(caller)
        assert self.settings.speak is not None
        reply = self._new_reply(caller, Spent(self._clock()))
        reply.is_own = True
        self._begin(reply)
        reply.marks = self._pipeline.say(self.settings.speak, reply.request_id, text, self._listener(reply))

    def repeat(self, caller: str) -> bool:
        """Say the last answer again, all of it; False when there is none, or nothing to say it with."""
        if not self.last_answer or self.settings.speak is None:
            return False
        self.say(self.last_answer, caller)
        return True

    def _asked(self, text: str, before: Spent) -> Reply:
        reply = self._new_reply(text, before)
        prompt = Prompt(self._history.with_caller(text), self.settings.instructions or None)
        reply.marks = self._pipeline.submit(self.settings.reply, reply.request_id, prompt, self._listener(reply))
        return reply

    def _new_reply(self, text: str, before: Spent) -> Reply:
        playout = Playout(self._output_hz, self.settings.lead_ms)
        return Reply(self._pipeline.new_id(), playout, text, self._clock(), before)

    def _begin(self, reply: Reply) -> None:
        """From now on the client hears of it."""
        reply.id, reply.epoch, reply.confirmed_s = f"r{next(self._numbers)}", self.epoch, self._clock()
        self.reply = reply
        self._emit(ReplyStarted(reply.id))
        if reply.error is not None:
            self._fail(reply, reply.error)
        else:
            self._tell(reply)

    # What the pipeline brings

    def _listener(self, reply: Reply) -> Listener:
        def take(result: Result) -> None:
            if reply is self.reply or reply is self._draft:
                self._take(reply, result)

        return take

    def _take(self, reply: Reply, result: Result) -> None:
        match result:
            case Chunk(_, SpokenClause() as clause):
                reply.add(clause)
                self._cut_too_long(reply)
            case Finished():
                reply.complete()
            case Failed(_, error):
                reply.error = error
            case _:
                raise TypeError(f"the reply brought {type(result.item).__name__}, expected SpokenClause")
        if reply is not self.reply:
            return
        if reply.error is not None:
            self._fail(reply, reply.error)
        else:
            self._tell(reply)
            self.check_played()  # a reply without sound is over at once

    def _cut_too_long(self, reply: Reply) -> None:
        if reply.playout.appended_s > self.settings.longest_reply_s:
            logger.warning("request %s: reply cut at %.0f s", reply.request_id, reply.playout.appended_s)
            self._pipeline.abort(reply.request_id)
            reply.complete()

    def _tell(self, reply: Reply) -> None:
        if reply.has_sound:
            self._apply(Input.REPLY_SOUND)

    def _fail(self, reply: Reply, error: str) -> None:
        self.epoch += 1
        self._emit(SessionError("stage_failed", error))
        if reply.was_told_to_pause:
            self._emit(Flush(reply.id))  # or the client would stay paused
        self._end(reply, ReplyDone(reply.id, "failed"))
        self._apply(Input.REPLY_OVER)

    # Playing

    @property
    def was_heard(self) -> bool:
        """Some of the present reply was sent."""
        return self.reply is not None and self.reply.playout.sent_ms > 0

    @property
    def heard_ms(self) -> float:
        """Of the present reply; 0 when there is none."""
        return self.reply.playout.played_ms(self._clock()) if self.reply is not None else 0.0

    def tell_captions(self) -> None:
        """The words that begin in the frame that is sent next."""
        if self.reply is not None and (text := self.reply.playout.take_caption(self._clock())):
            self._emit(ReplyText(self.reply.id, text))

    def next_frame(self) -> tuple[int, bytes] | None:
        """The reply's epoch and its next frame, when one is due."""
        if self.reply is None or (frame := self.reply.next_frame(self._clock())) is None:
            return None
        return self.reply.epoch, frame

    def wait_s(self) -> float:
        return self.reply.playout.wait_s(self._clock()) if self.reply is not None else float("inf")

    def check_played(self) -> None:
        """What time alone brings: the reply was played to its end."""
        reply = self.reply
        if reply is not None and reply.playout.is_over(self._clock()):
            self._end(reply, ReplyDone(reply.id, "completed"))
            self._apply(Input.REPLY_OVER)

    def reported(self, reply_id: str, ms: float) -> None:
        """The client's evidence of what was heard."""
        if self.reply is not None and self.reply.id == reply_id:
            self.reply.playout.reported(ms, self._clock())

    def take_played(self, ahead_ms: float) -> bytes:
        """See `Playout.take_played`."""
        return self.reply.playout.take_played(self._clock(), ahead_ms) if self.reply is not None else b""

    # An interruption, perhaps

    def hold(self) -> None:
        if (reply := self.reply) is None:
            return
        reply.playout.hold(self._clock())
        if reply.playout.sent_ms:
            reply.was_told_to_pause = True
            self._emit(Pause(reply.id))

    def resume(self) -> None:
        if (reply := self.reply) is None:
            return
        reply.playout.resume(self._clock())
        if reply.was_told_to_pause:
            reply.was_told_to_pause = False
            self._emit(Resume(reply.id))

    def abort(self) -> None:
        """Raise the epoch, abort every stage, tell the client to drop what it has buffered."""
        self.epoch += 1
        self.drop_draft()
        if (reply := self.reply) is not None:
            self._pipeline.abort(reply.request_id)
            self._emit(Flush(reply.id))
            self._end(reply, ReplyDone(reply.id, "interrupted"))

    def _end(self, reply: Reply, done: ReplyDone) -> None:
        """The one way out for a reply: played, cut and failed all pass here."""
        self.reply = None
        heard = reply.playout.heard_text(self._clock())
        if done.status == "completed" and (rest := reply.playout.take_rest()):
            self._emit(ReplyText(reply.id, rest))  # words that have no sound
        self._history.add_agent(heard, was_cut=done.status != "completed")
        if not reply.is_own:
            self.last_answer = reply.playout.text or self.last_answer
        if (timing := reply.timing(self.settings.reply)) is not None:
            self._emit(timing)
        done = ReplyDone(done.reply, done.status, heard)
        # A turn's latency is that of an answer to something said: it has a pause.
        self._on_reply_done(done, timing if reply.before.ms else None, reply.marks)
        self._emit(done)
