"""The sessions of a server, whatever door they come through: who is let in, what each has, what stays of it."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from voice_runtime.errors import PeerError
from voice_runtime.gateway.clients import THIS_MACHINE
from voice_runtime.gateway.metrics import Metrics
from voice_runtime.gateway.parked import ParkedConversations
from voice_runtime.models.vad import SileroVad
from voice_runtime.pipeline.config import PipelineConfig
from voice_runtime.pipeline.runtime import Pipeline
from voice_runtime.session.recording import Recorder
from voice_runtime.session.session import Session


@dataclass(slots=True)
class Admitted:
    """A session that a door may serve.

    resume: the token with which another can go on with it later. is_told: the client has got that token; a door that
        sets it to False until then leaves the one that the client came with good. is_kept: it can be gone on with.
    """

    id: str
    session: Session
    resume: str
    is_recorded: bool
    is_told: bool = True
    is_kept: bool = True


@dataclass(frozen=True, slots=True)
class _Open:
    """client: whose it is. came_with: the token of the conversation that it goes on with."""

    admitted: Admitted
    client: str
    came_with: str | None


class Sessions:
    """All methods are for the event loop's thread."""

    def __init__(self, config: PipelineConfig, pipeline: Pipeline, vad: SileroVad, metrics: Metrics) -> None:
        self._config = config
        self._pipeline = pipeline
        self._vad = vad
        self._metrics = metrics
        self._open: dict[str, _Open] = {}  # by the token with which it can be gone on with
        self._parked = ParkedConversations(config.session.resume_s, time.monotonic)

    def __len__(self) -> int:
        return len(self._open)

    @contextlib.contextmanager
    def open(
        self, input_hz: int, output_hz: int, resume: str | None = None, *, client: str, lead_ms: int | None = None
    ) -> Iterator[Admitted]:
        """A session for as long as the context is entered.

        client: whose it is, see `client_name`. lead_ms: as in `SessionSettings`, which says it when it is None.

        Raises:
            PeerError: not_ready, too_many_sessions, bad_resume.
        """
        self._check_ready()
        if (back := self._token_of(resume)) is not None:  # the caller is back before its loss was noticed
            self._open[back].admitted.session.close()
            self._park(back)
        self._check_room(client)
        memory = None if resume is None else self._parked.take(resume)
        session_id, recorder = self._pipeline.new_id(), self._recorder()
        settings = self._config.session
        if lead_ms is not None:
            settings = msgspec.structs.replace(settings, lead_ms=lead_ms)
        session = Session(
            self._pipeline,
            settings,
            self._vad.open(),
            input_hz,
            output_hz,
            self._metrics.reply_done,
            memory=memory,
            recorder=recorder,
        )
        token = self._parked.new_token()
        admitted = Admitted(session_id, session, token, recorder is not None)
        self._open[token] = _Open(admitted, client, resume)
        self._metrics.sessions.set(len(self._open))
        try:
            yield admitted
        finally:
            session.close()
            if token in self._open:
                self._park(token)
            if recorder is not None:
                recorder.close()

    def _token_of(self, resume: str | None) -> str | None:
        """The key of the open session that a client's token stands for."""
        if resume in self._open:
            return resume
        untold = (key for key, one in self._open.items() if one.came_with == resume and not one.admitted.is_told)
        return next(untold, None) if resume is not None else None

    def _park(self, token: str) -> None:
        one = self._open.pop(token)
        memory = one.admitted.session.memory
        untouched = msgspec.structs.replace(self._config.session, lead_ms=memory.settings.lead_ms)
        if one.admitted.is_kept and (memory.messages or memory.settings != untouched):
            self._parked.put(token if one.admitted.is_told else one.came_with or token, memory)
            asyncio.get_running_loop().call_later(self._config.session.resume_s, self._parked.drop_expired)
        self._metrics.sessions.set(len(self._open))

    def _check_ready(self) -> None:
        starting = [stage for stage, state in self._pipeline.health().items() if state != "ready"]
        if starting:
            raise PeerError("not_ready", f"{', '.join(starting)} not ready yet")

    def _check_room(self, client: str) -> None:
        limits = self._config.limits
        if len(self._open) >= limits.sessions:
            raise PeerError("too_many_sessions", f"{len(self._open)} sessions are open, the limit")
        theirs = sum(one.client == client for one in self._open.values())
        if client != THIS_MACHINE and theirs >= limits.sessions_per_client:
            expected = f"at most {limits.sessions_per_client}"
            raise PeerError("too_many_sessions", f"the client has {theirs} sessions open, expected {expected}")

    def _recorder(self) -> Recorder | None:
        settings = self._config.recording
        if settings is None:
            return None
        name = f"{time.time_ns():x}"  # session ids begin anew with each server
        return Recorder(Path(settings.folder), name, longest_s=settings.longest_s)
