"""What the words of a caller mean for the turn, by many examples."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_runtime.pipeline.config import BACKCHANNELS
from voice_runtime.session.phrases import asks_to_repeat, has_words, is_unfinished, without_backchannels

NOTHING = ["", " ", ".", "...", "?!", "- -"]
AGREES = """
mm-hm|Mm-hmm.|M-hmm.|mhm|Mmm.|Hmm?|hm|Uh huh.|Uh-huh|uh|Um,|Er...|ah|Ahh!|Oh.|oh wow|Ha ha|Haha!|Huh?|ugh
yeah|Yeah.|Yeah, yeah, yeah.|YES|yep|okay|OK.|Okay, sure.|right|Right, right.|all right|Alright
I see.|Got it.|of course|Go on.|Exactly!|that's right|That\u2019s right.|makes sense|Oh really?|yeah I know
yes, uh-huh, I see|Yes please go on.|very nice, okay|fair enough|True. True.
"""
INTERRUPTS = """
stop|no|No, no.|Wait.|okay stop|Okay, okay, stop it.|yeah but|Yeah, but wait|right, but what about
Right, but what about the price?|hold on|excuse me|hello?|What?|sorry|mm-hm no|I see a problem|that's not right
Really good morning|the right one|uh, what time is it|I know him|yesterday|Okra|never mind|please|thank you
"""
FINISHED = """
Hello.|Thank you.|thank you|Thanks.|What is the capital of Italy?|What is that about?|Yes|No.
How are you?|how are you|and you|What about her|Tell me about it|I like this one|Where is it?|who are you|who is she
That is all|I think so|I hope so.|I want to talk to you|can you help me with this|is it for them|I love you
Please call her|see you|what's wrong with you|the number is correct|The code is wrong.|what is the number
my number is 555 123|My zip code is 9 4 1 0 3 1|the extension is 123456|what is this|I am here|yes they are mine
my number is five five five one two three|Can you tell me more?|who is that|Is that so?
"""
UNFINISHED = """
Can you tell me?|Do you know?|I would like to know.|So could you please tell me|What about
I would like to and|I would like to|I went home and|And|But,|and then I|because|So um|uh|I was thinking, uh|Um.
the|What is the|I want to go to the|tell me about the|I live in a|is there a|it was with my
my name is|If I|something between|I would like to talk about|I want to go home and I
my number is|my number is 55|My number is five five|the code is 12|my phone number is 020 7|My pin is 1 2
it's on the|and of the|The number it's 12
"""
REPEATS = """
Repeat that.|repeat that please|Could you repeat that?|Can you please repeat that|Say that again.
Can you say that again?|Say it again please|What did you say?|what did you just say|What was that?
Sorry, what was that?|Come again?
I beg your pardon?|Pardon?|pardon me|Sorry, can you say that once more?|One more time.|Please repeat yourself
Wait, what did you say|Excuse me, could you repeat what you said?|would you repeat it again please
"""
OTHERS = """
|Say that again slowly in French|What did you say about Rome?|What was that film|repeat after me|pardon the noise
Can you say that?|Come again tomorrow|Sorry|what|please|Could you|I said that again|one more time zone|Hello.
"""


def lines(table: str) -> list[str]:
    return [text for line in table.strip("\n").splitlines() for text in line.split("|")]


@pytest.mark.parametrize("text", NOTHING)
def test_a_cough_means_nothing(text: str) -> None:
    assert not has_words(text)
    assert not is_unfinished(text)


@pytest.mark.parametrize("text", lines(AGREES))
def test_a_listener_agrees(text: str) -> None:
    assert without_backchannels(text, BACKCHANNELS) == []


@pytest.mark.parametrize("text", lines(INTERRUPTS))
def test_words_interrupt(text: str) -> None:
    assert without_backchannels(text, BACKCHANNELS)


def test_the_callers_own_backchannels_count_and_others_do_not() -> None:
    assert without_backchannels("Roger that!", ["roger that"]) == []
    assert without_backchannels("Roger!", ["roger that"]) == ["roger"]
    assert without_backchannels("okay", []) == ["okay"]
    assert without_backchannels("uh-huh", []) == []


@pytest.mark.parametrize("text", lines(FINISHED))
def test_a_finished_sentence_wants_no_more(text: str) -> None:
    assert not is_unfinished(text)


@pytest.mark.parametrize("text", lines(UNFINISHED))
def test_an_unfinished_sentence_wants_more(text: str) -> None:
    assert is_unfinished(text)


@pytest.mark.parametrize("text", lines(REPEATS))
def test_a_wish_to_hear_the_answer_again(text: str) -> None:
    assert asks_to_repeat(text)


@pytest.mark.parametrize("text", lines(OTHERS))
def test_what_is_more_or_less_than_that_wish_goes_to_the_thinker(text: str) -> None:
    assert not asks_to_repeat(text)


@given(words=st.lists(st.sampled_from([*BACKCHANNELS, "mm-hm", "uh"]), min_size=1, max_size=6))
def test_of_any_row_of_backchannels_nothing_is_left_and_of_one_word_more_that_word(words: list[str]) -> None:
    assert without_backchannels(", ".join(words), BACKCHANNELS) == []
    assert without_backchannels(", ".join([*words, "stop"]), BACKCHANNELS) == ["stop"]


@given(text=st.text(max_size=300), backchannels=st.lists(st.text(min_size=1, max_size=10), max_size=4))
def test_any_text_can_be_looked_at(text: str, backchannels: list[str]) -> None:
    assert bool(without_backchannels(text, backchannels)) <= has_words(text) or "_" in text
    assert not (asks_to_repeat(text) and not has_words(text))
    is_unfinished(text)


def test_a_callers_own_backchannel_may_have_a_mere_sound_in_it() -> None:
    assert without_backchannels("Oh my word!", ["oh my word"]) == []
    assert without_backchannels("my word", ["oh my word"]) == []
    assert without_backchannels("Oh my word, stop", ["oh my word"]) == ["stop"]
