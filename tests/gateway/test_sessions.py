"""Who is let in, and what stays of a session for the next one. The stages are played by the test."""

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from tests.support.gateway import Deaf, Stages
from voice_runtime.errors import PeerError
from voice_runtime.gateway.clients import THIS_MACHINE
from voice_runtime.gateway.metrics import Metrics
from voice_runtime.gateway.sessions import Admitted, Sessions
from voice_runtime.models.vad import SileroVad
from voice_runtime.pipeline.config import LimitSettings, PipelineConfig, SessionSettings
from voice_runtime.pipeline.runtime import Pipeline
from voice_runtime.session.events import Configure, Flush, ReplyDone, TypedText
from voice_runtime.session.turn import State
from voice_runtime.stages.payloads import Prompt

RATE_HZ = 16_000


@dataclass
class House:
    """The sessions of a server that has room for so many, and for so many of each client."""

    room: int = 8
    room_each: int = 4
    resume_s: float = 60.0
    stages: Stages = field(default_factory=Stages)
    metrics: Metrics = field(default_factory=Metrics)

    def __post_init__(self) -> None:
        self.settings = SessionSettings(recognise="asr", reply="thinker", speak="speech", resume_s=self.resume_s)
        limits = LimitSettings(sessions=self.room, sessions_per_client=self.room_each)
        config = PipelineConfig(name="p", stages={}, session=self.settings, limits=limits)
        self.sessions = Sessions(config, cast(Pipeline, self.stages), cast(SileroVad, Deaf()), self.metrics)

    def open(
        self, resume: str | None = None, client: str = THIS_MACHINE
    ) -> contextlib.AbstractContextManager[Admitted]:
        return self.sessions.open(RATE_HZ, RATE_HZ, resume, client=client)

    def refusal(self, resume: str | None = None, client: str = THIS_MACHINE) -> str:
        with pytest.raises(PeerError) as refused, self.open(resume, client):
            pass
        return refused.value.code

    def visit(self, resume: str | None = None, question: str | None = None, **changes: Any) -> str:
        """A whole session; the token with which it can be gone on with."""
        with self.open(resume) as admitted:
            if changes:
                admitted.session.receive(Configure(changes))
            if question is not None:
                admitted.session.receive(TypedText(question))
        return admitted.resume

    def counted(self) -> float | None:
        return self.metrics.registry.get_sample_value("voice_sessions")


@contextlib.contextmanager
def talking(house: House, question: str = "Hello.") -> Iterator[Admitted]:
    """A session whose caller has asked something."""
    with house.open() as admitted:
        admitted.session.receive(TypedText(question))
        yield admitted


async def test_a_client_that_never_got_its_new_token_may_come_again_with_the_old_one() -> None:
    house = House()
    token = house.visit(question="Hello.")
    with house.open(token) as failed:  # a WebRTC connection that does not come about
        failed.is_told = False
        with house.open(token) as instead:  # and the WebSocket in its place, before the other has ended
            assert failed.session.state is State.CLOSED
            assert [message.text for message in instead.session.memory.messages] == ["Hello."]
    with house.open(instead.resume) as again:
        again.is_told = False
    assert house.refusal(token) == "bad_resume"
    with house.open(instead.resume) as again:  # after it has ended
        assert [message.text for message in again.session.memory.messages] == ["Hello."]
        assert house.refusal(instead.resume) == "bad_resume"  # this one has got a new token


async def test_a_conversation_can_be_gone_on_with_once() -> None:
    house = House()
    token = house.visit(question="Hello.")
    with house.open(token) as again:
        assert [message.text for message in again.session.memory.messages] == ["Hello."]
        again.session.receive(TypedText("And now?"))
        payload = house.stages.last("thinker").payload
        assert isinstance(payload, Prompt)
        assert payload.messages[-1].text == "Hello. And now?"
    assert house.refusal(token) == "bad_resume"


async def test_a_token_is_spent_even_if_nothing_was_said_with_it_and_its_successor_goes_on() -> None:
    house = House()
    token = house.visit(question="Hello.")
    successor = house.visit(token)
    assert successor != token
    assert house.refusal(token) == "bad_resume"
    with house.open(successor) as again:
        assert [message.text for message in again.session.memory.messages] == ["Hello."]


async def test_a_session_in_which_nothing_was_said_or_set_is_not_kept() -> None:
    house = House()
    assert house.refusal(house.visit()) == "bad_resume"
    assert house.refusal(house.visit(goodbye=house.settings.goodbye)) == "bad_resume"


async def test_settings_that_were_made_are_kept_even_if_nothing_was_said() -> None:
    house = House()
    token = house.visit(instructions="Be brief.")
    with house.open(token) as again:
        assert again.session.memory.settings.instructions == "Be brief."


async def test_with_no_time_to_wait_nothing_is_kept() -> None:
    house = House(resume_s=0.0)
    assert house.refusal(house.visit(question="Hello.")) == "bad_resume"


async def test_what_nobody_comes_back_for_is_forgotten_without_anybody_asking() -> None:
    house = House(resume_s=0.02)
    house.visit(question="Hello.")
    kept = house.sessions._parked._parked
    assert len(kept) == 1
    over = asyncio.Event()
    asyncio.get_running_loop().call_later(house.resume_s, over.set)
    await over.wait()
    assert not kept


async def test_a_caller_who_is_back_before_its_loss_was_noticed_takes_the_place_of_its_first_session() -> None:
    house = House(room=1)
    with talking(house) as lost:
        asked = house.stages.last("thinker")
        with house.open(lost.resume) as again:
            assert lost.session.state is State.CLOSED
            assert asked.is_aborted
            assert again.session is not lost.session
            assert [message.text for message in again.session.memory.messages] == ["Hello."]
            assert (len(house.sessions), house.counted()) == (1, 1)
            again.session.receive(TypedText("And now?"))
    assert (len(house.sessions), house.counted()) == (0, 0)
    assert house.refusal(lost.resume) == "bad_resume"
    with house.open(again.resume) as third:
        assert [message.text for message in third.session.memory.messages] == ["Hello. And now?"]


async def test_the_end_of_the_first_session_is_told_to_its_client_and_costs_the_second_nothing() -> None:
    house = House()
    with contextlib.ExitStack() as second:
        with talking(house) as lost:
            again = second.enter_context(house.open(lost.resume))
            told = [lost.session.next_output() for _ in range(3)]
            assert [type(output) for output in told[1:]] == [Flush, ReplyDone]
        assert again.session.state is State.LISTENING
        assert len(house.sessions) == 1


async def test_more_than_the_limit_are_refused_and_a_place_is_free_again_after_each_end() -> None:
    house = House(room=2)
    token = house.visit(question="Hello.")
    with house.open(), house.open():
        assert house.counted() == 2
        assert house.refusal() == house.refusal(token) == "too_many_sessions"
    with house.open(token) as again:  # a refusal for want of room has not spent it
        assert again.session.memory.messages


async def test_a_caller_is_refused_by_name_until_all_stages_are_ready() -> None:
    house = House()
    with talking(house) as admitted:
        house.stages.state = "starting"
        assert house.refusal() == house.refusal(admitted.resume) == "not_ready"
        assert admitted.session.state is State.THINKING  # who is in stays


async def test_a_token_of_nobodys_ends_nobodys_session() -> None:
    house = House()
    with talking(house) as admitted:
        assert house.refusal("x") == "bad_resume"
        assert admitted.session.state is State.THINKING
        assert len(house.sessions) == 1


async def test_a_client_has_so_many_sessions_at_a_time_and_others_have_theirs() -> None:
    house = House(room_each=2)
    with house.open(client="192.0.2.1") as first:
        with house.open(client="192.0.2.1"):
            assert house.refusal(client="192.0.2.1") == "too_many_sessions"
            with house.open(client="192.0.2.2"), house.open(client="192.0.2.2"):
                assert len(house.sessions) == 4
        first.session.receive(TypedText("Hello."))
        with house.open(client="192.0.2.1"):
            assert house.refusal(client="192.0.2.1") == "too_many_sessions"
            with house.open(first.resume, client="192.0.2.1"):  # instead of its own first one
                assert house.refusal(client="192.0.2.1") == "too_many_sessions"


async def test_the_refusal_of_one_session_too_many_tells_how_many_there_are_and_may_be() -> None:
    house = House(room_each=1)
    with (
        house.open(client="192.0.2.1"),
        pytest.raises(PeerError, match="the client has 1 sessions open, expected at most 1"),
        house.open(client="192.0.2.1"),
    ):
        pass


async def test_this_machine_may_take_all_the_room() -> None:
    house = House(room=3, room_each=1)
    with house.open(), house.open(), house.open():
        assert house.refusal() == "too_many_sessions"
