"""Whether words over a reply interrupt: what they are, and how sure the recogniser is of them."""

import pytest

from voice_runtime.pipeline.config import TurnSettings
from voice_runtime.session.barge_in import SHORT_MS, interrupts
from voice_runtime.session.recognition import Words
from voice_runtime.session.reply import Spent

LONG_MS = 2 * SHORT_MS


def words(text: str, confidence: float = 0.9, weakest: float = 0.8, voiced_ms: int = LONG_MS) -> Words:
    return Words("", 0.0, voiced_ms, Spent(0.0), text, confidence, weakest)


@pytest.mark.parametrize("text", ["Stop.", "What about Rome?", "No, I meant Spain.", "Yes, but how old is it?"])
def test_clear_words_interrupt(text: str) -> None:
    assert interrupts(words(text), TurnSettings(), is_all=True)


@pytest.mark.parametrize("text", ["", "Yeah.", "Mm-hmm, I see.", "You", "The.", "\u266a\u266a", "Ha, ha, ha."])
def test_coughs_music_and_a_listener_who_agrees_do_not(text: str) -> None:
    assert not interrupts(words(text), TurnSettings(), is_all=True)


def test_words_of_which_the_recogniser_is_not_sure_do_not_interrupt() -> None:
    assert not interrupts(words("I think it is a good idea", confidence=0.35), TurnSettings(), is_all=True)
    assert not interrupts(words("I think it is a good idea", weakest=0.05), TurnSettings(), is_all=True)


def test_a_short_word_must_be_surer_unless_it_is_a_command() -> None:
    assert interrupts(words("You have.", confidence=0.6), TurnSettings(), is_all=True)
    assert not interrupts(words("You have.", confidence=0.6, voiced_ms=SHORT_MS - 32), TurnSettings(), is_all=True)
    assert interrupts(words("Wait,", confidence=0.6, voiced_ms=SHORT_MS - 32), TurnSettings(), is_all=True)


def test_while_the_caller_goes_on_a_word_or_two_are_not_enough() -> None:
    assert not interrupts(words("What about"), TurnSettings(), is_all=False)
    assert interrupts(words("What about the weather"), TurnSettings(), is_all=False)
    assert not interrupts(words("What about the weather", confidence=0.5), TurnSettings(), is_all=False)


@pytest.mark.parametrize(
    "said",
    [
        words("Rome is", confidence=0.5, voiced_ms=SHORT_MS - 32),
        words("Rome is", weakest=0.05),
        words("What about Rome", confidence=0.46, weakest=0.05),
    ],
)
@pytest.mark.parametrize("is_all", [True, False])
def test_before_anything_of_the_reply_was_heard_less_sure_words_interrupt(said: Words, is_all: bool) -> None:
    assert not interrupts(said, TurnSettings(), is_all=is_all)
    assert interrupts(said, TurnSettings(), is_all=is_all, reply_was_heard=False)


@pytest.mark.parametrize("said", [words("Rome is", confidence=0.4), words("Yeah."), words("You"), words("")])
def test_before_anything_of_the_reply_was_heard_noise_and_agreement_still_do_not(said: Words) -> None:
    assert not interrupts(said, TurnSettings(), is_all=True, reply_was_heard=False)


@pytest.mark.parametrize(("least", "expected"), [(1, True), (2, True), (3, False)])
def test_only_so_many_words_interrupt(least: int, expected: bool) -> None:
    settings = TurnSettings(interrupt_words=least)
    assert interrupts(words("okay, please stop, yeah"), settings, is_all=True) is expected
