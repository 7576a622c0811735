"""The conversation as it was heard."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_runtime.session.history import LONGEST_MESSAGE_CHARACTERS, History
from voice_runtime.stages.payloads import CUT, Message


def said(history: History) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in history.messages]


def test_caller_and_agent_take_turns() -> None:
    history = History(6)
    history.add_caller("Hello.")
    history.add_agent("Good day.")
    history.add_caller("How are you?")
    assert said(history) == [("user", "Hello."), ("assistant", "Good day."), ("user", "How are you?")]


def test_after_an_answer_of_which_nothing_was_heard_the_caller_s_words_go_on() -> None:
    history = History(6)
    history.add_caller("Hello.")
    history.add_agent("")
    history.add_caller("Are you there?")
    assert said(history) == [("user", "Hello. Are you there?")]


def test_what_the_agent_says_after_its_answer_is_the_same_message() -> None:
    history = History(6)
    history.add_agent("Good day.")
    history.add_agent("Are you", was_cut=True)
    history.add_caller("Yes.")
    assert history.messages == [Message("assistant", "Good day. Are you", True), Message("user", "Yes.")]


def test_what_the_agent_says_after_an_answer_that_was_cut_is_parted_from_it() -> None:
    history = History(6)
    history.add_caller("Count.")
    history.add_agent("One, two,", was_cut=True)
    history.add_agent("Are you there?")
    assert history.messages[1:] == [Message("assistant", f"One, two,{CUT} Are you there?", was_cut=False)]
    history.add_agent("Goodbye", was_cut=True)
    assert history.messages[1:] == [Message("assistant", f"One, two,{CUT} Are you there? Goodbye", was_cut=True)]


def test_the_oldest_pairs_are_forgotten() -> None:
    history = History(2)
    for number in range(5):
        history.add_caller(f"q{number}")
        history.add_agent(f"a{number}")
    history.add_caller("q5")
    assert [text for _, text in said(history)] == ["q3", "a3", "q4", "a4", "q5"]


def test_a_prompt_does_not_change_with_the_conversation_nor_the_conversation_with_a_prompt() -> None:
    history = History(6)
    history.add_caller("Hello.")
    prompt = history.with_caller("Are you there?")
    assert said(history) == [("user", "Hello.")]
    history.add_agent("Good day.")
    history.add_caller("Fine.")
    assert prompt == [Message("user", "Hello. Are you there?")]


def test_an_answer_that_was_cut_is_marked() -> None:
    history = History(6)
    history.add_caller("Count.")
    history.add_agent("One, two,", was_cut=True)
    history.add_caller("Go on.")
    history.add_agent("Three.")
    assert [message.was_cut for message in history.messages] == [False, True, False, False]


def test_of_words_that_are_never_answered_the_last_are_kept() -> None:
    history = History(6)
    for number in range(1_000):
        history.add_caller(f"word{number}")
    assert len(history.messages) == 1
    assert len(history.messages[0].text) == LONGEST_MESSAGE_CHARACTERS
    assert history.messages[0].text.endswith("word998 word999")


@pytest.mark.parametrize("turns", [0, 1, 3])
@given(heard=st.lists(st.sampled_from(["", "yes", "again"]), max_size=20))
def test_a_prompt_alternates_ends_with_the_caller_and_shows_no_more_pairs_than_allowed(
    turns: int, heard: list[str]
) -> None:
    history = History(turns)
    for number, answer in enumerate(heard):
        history.add_caller(f"q{number}")
        roles = [role for role, _ in said(history)]
        assert roles[-1] == "user"
        assert all(one != other for one, other in pairwise(roles))
        assert len(roles) <= 2 * turns + 1
        history.add_agent(answer)
        if answer == "again":
            history.add_agent("Are you there?")
