"""Conversations that wait for their caller to come back."""

import pytest

from tests.support.clock import Clock
from voice_runtime.errors import PeerError
from voice_runtime.gateway.parked import MOST_PARKED, ParkedConversations
from voice_runtime.pipeline.config import SessionSettings
from voice_runtime.session.history import Memory
from voice_runtime.stages.payloads import Message

SETTINGS = SessionSettings(recognise="asr", reply="thinker")


def memory(text: str = "Hello.") -> Memory:
    return Memory([Message("user", text)], SETTINGS)


def parked(keep_s: float = 60.0) -> tuple[ParkedConversations, Clock]:
    clock = Clock(5_000.0)
    return ParkedConversations(keep_s, clock), clock


def is_refused(conversations: ParkedConversations, token: str) -> bool:
    try:
        conversations.take(token)
    except PeerError as error:
        return error.code == "bad_resume"
    return False


def test_a_conversation_is_taken_once() -> None:
    conversations, _ = parked()
    token, kept = conversations.new_token(), memory()
    assert is_refused(conversations, token)
    conversations.put(token, kept)
    assert conversations.take(token) is kept
    assert is_refused(conversations, token)


@pytest.mark.parametrize("token", ["", "x", "a" * 10_000, "\ud800"])
def test_a_token_that_was_never_given_is_refused_by_name(token: str) -> None:
    conversations, _ = parked()
    conversations.put(conversations.new_token(), memory())
    assert is_refused(conversations, token)


def test_tokens_are_new_and_cannot_be_guessed() -> None:
    conversations, _ = parked()
    tokens = {conversations.new_token() for _ in range(1_000)}
    assert len(tokens) == 1_000
    assert min(len(token) for token in tokens) >= 16


@pytest.mark.parametrize(("waited_s", "refused"), [(59.9, False), (60.0, True), (600.0, True)])
def test_a_conversation_expires(waited_s: float, refused: bool) -> None:
    conversations, clock = parked(60.0)
    conversations.put("old", memory())
    clock.now_s += waited_s
    conversations.put("new", memory())
    assert is_refused(conversations, "old") is refused
    assert not is_refused(conversations, "new")


def test_a_conversation_that_has_expired_cannot_be_taken_though_nothing_was_put_since() -> None:
    conversations, clock = parked(60.0)
    conversations.put("old", memory())
    clock.now_s += 60.0
    assert is_refused(conversations, "old")


def test_with_no_time_to_wait_nothing_is_kept() -> None:
    conversations, _ = parked(0.0)
    conversations.put("token", memory())
    assert is_refused(conversations, "token")


def test_whatever_is_given_is_kept() -> None:
    conversations, _ = parked()
    kept = Memory([], SETTINGS)
    conversations.put("token", kept)
    assert conversations.take("token") is kept


def test_what_has_expired_can_be_forgotten_before_anybody_asks() -> None:
    conversations, clock = parked(60.0)
    conversations.put("old", memory())
    clock.now_s += 1.0
    conversations.put("new", memory())
    clock.now_s += 59.0
    conversations.drop_expired()
    clock.now_s -= 60.0  # it is not merely refused
    assert is_refused(conversations, "old")
    assert not is_refused(conversations, "new")


def test_no_more_than_the_limit_are_kept_and_the_oldest_make_room() -> None:
    conversations, _ = parked()
    for number in range(MOST_PARKED + 2):
        conversations.put(f"t{number}", memory())
    assert [is_refused(conversations, f"t{number}") for number in (0, 1, 2, MOST_PARKED + 1)] == [
        True,
        True,
        False,
        False,
    ]
