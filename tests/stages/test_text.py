"""Text aggregation: clauses add up to the text, however it came, and nothing that is not to be spoken gets out."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from voice_runtime import assets
from voice_runtime.stages import text as text_stage
from voice_runtime.stages.payloads import Clause, TokenIds
from voice_runtime.stages.text import ClauseCutter, ReplyText, TextSettings


def settings(
    *stop: str, first_words: int = 6, min_words: int = 5, max_words: int = 24, growth: float = 3.0
) -> TextSettings:
    return TextSettings(
        worker="w", stop=stop, first_words=first_words, min_words=min_words, max_words=max_words, growth=growth
    )


def clauses(pieces: list[str], how: TextSettings | None = None) -> list[str]:
    cutter = ClauseCutter(how or settings())
    found = [clause for piece in pieces for clause in cutter.push(piece)]
    return [*found, *cutter.close()]


def cut(text: str, borders: list[int]) -> list[str]:
    places = [0, *sorted(min(border, len(text)) for border in borders), len(text)]
    return [text[start:end] for start, end in pairwise(places)]


# Rich in what clauses end and begin with, and in beginnings of the stop strings below.
PIECES = [
    *"a word Dr. 3.5 10:30 I e.g. … ? <| <|end <|end|> END EN ab abc bcd".split(),
    *(" ", "  ", "\n", ". ", "! ", '." ', ", ", ": ", "…\t", "x. y", " z", "x. y z"),
]
texts = st.lists(
    st.tuples(st.sampled_from(PIECES), st.sampled_from(["", " ", " ", " "])).map("".join), max_size=30
).map("".join)
stops = st.sampled_from([(), ("<|end|>",), ("END", "<|end|>"), ("x. y z",), ("abcd", "bc"), ("a", "ab"), (" ",)])


def before_stop(text: str, stop: tuple[str, ...]) -> str:
    """The text up to the stop string that is complete first, letter by letter."""
    for end in range(len(text) + 1):
        starts = [end - len(string) for string in stop if text[:end].endswith(string)]
        if starts:
            return text[: min(starts)]
    return text


@given(text=texts, stop=stops, borders=st.lists(st.integers(0, 120), max_size=20))
def test_the_clauses_add_up_to_the_text_before_the_stop_string(
    text: str, stop: tuple[str, ...], borders: list[int]
) -> None:
    spoken = "".join(clauses(cut(text, borders), settings(*stop)))
    expected = before_stop(text, stop)
    assert expected.startswith(spoken)
    assert not expected[len(spoken) :].strip()


@given(text=texts, stop=stops, borders=st.lists(st.integers(0, 120), max_size=20))
def test_the_clauses_do_not_depend_on_how_the_text_came(text: str, stop: tuple[str, ...], borders: list[int]) -> None:
    how = settings(*stop, first_words=3, min_words=2, max_words=5)
    assert clauses(cut(text, borders), how) == clauses([text], how) == clauses(list(text), how)


@pytest.mark.parametrize(
    ("text", "stop", "expected"),
    [
        ("a b c d e f. g", (), ["a b c ", "d e f. ", "g"]),  # the third word comes before the full stop
        ("a  b  c  d", (), ["a  b  c ", " d"]),  # of two spaces the second may come late
        ("a x. y x. y z", ("x. y z",), ["a x. ", "y "]),  # the text itself looks like the stop string's beginning
        ("a abcd", ("abcd", "bc"), ["a a"]),  # "bc" is there before "abcd" is
    ],
)
def test_cuts_that_could_depend_on_how_the_text_came(text: str, stop: tuple[str, ...], expected: list[str]) -> None:
    how = settings(*stop, first_words=3)
    assert clauses([text], how) == clauses(list(text), how) == expected


@given(text=texts, stop=stops)
def test_no_clause_is_longer_than_its_limit_or_without_words(text: str, stop: tuple[str, ...]) -> None:
    found = clauses([text], settings(*stop, first_words=3, max_words=5))
    for number, clause in enumerate(found):
        assert 1 <= len(clause.split()) <= (5 if number else 3)


@given(text=texts, stop=stops)
def test_a_clause_goes_out_while_what_follows_is_still_being_written(text: str, stop: tuple[str, ...]) -> None:
    cutter = ClauseCutter(settings(*stop, first_words=3, max_words=5))
    held = text
    for clause in cutter.push(text):
        held = held.removeprefix(clause)
    if not cutter.stopped and not stop:
        assert len(held.split()) <= 5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It is 3.5 metres. Yes.", ["It is 3.5 metres. ", "Yes."]),
        ("At 10:30 we go. Yes.", ["At 10:30 we go. ", "Yes."]),
        ("Ask Dr. Smith now. Yes.", ["Ask Dr. Smith now. ", "Yes."]),
        ("Ask J. Smith now. Yes.", ["Ask J. Smith now. ", "Yes."]),
        ("Fruit, e.g. apples. Yes.", ["Fruit, e.g. apples. ", "Yes."]),
        ('He said "no." Then left.', ['He said "no." ', "Then left."]),
        ("Really?! Yes… No. ", ["Really?! ", "Yes… ", "No. "]),
        ("one\ntwo\n\nthree", ["one\n", "two\n", "\nthree"]),
        ("No, thank you.", ["No, thank you."]),
        ("Well then, I go.", ["Well then, ", "I go."]),
        ("Yes. One, two, three, four, five, six.", ["Yes. ", "One, two, three, ", "four, five, six."]),
        ("", []),
        (" \n ", []),
    ],
)
def test_clauses_end_where_a_speaker_would_pause(text: str, expected: list[str]) -> None:
    assert clauses(list(text)) == expected


def test_the_first_clause_goes_out_early_and_later_ones_are_longer() -> None:
    cutter = ClauseCutter(settings(first_words=6, max_words=8))
    words = [f"{chr(97 + number)} " for number in range(20)]
    found = [(number, clause) for number, word in enumerate(words, 1) for clause in cutter.push(word)]
    assert found == [(6, "".join(words[:6])), (14, "".join(words[6:14]))]
    assert list(cutter.close()) == ["".join(words[14:])]


@pytest.mark.parametrize(("growth", "expected"), [(3.0, [2, 6, 24, 24, 4]), (1.25, [2, 2, 5, 11, 24, 16])])
def test_a_clause_is_at_most_so_many_times_as_long_as_all_that_is_heard_while_it_is_thought(
    growth: float, expected: list[int]
) -> None:
    how = settings(first_words=2, max_words=24, growth=growth)
    assert [len(clause.split()) for clause in clauses(["word " * 60], how)] == expected


def test_a_number_counts_as_many_words_as_it_has_digits() -> None:
    text = "Yes. The ocean is 141,072 kilometers wide and very deep."
    found = clauses([text], settings(first_words=6, max_words=6))
    assert found == ["Yes. ", "The ocean is 141,072 ", "kilometers wide and very deep."]


def test_a_stop_string_in_pieces_never_gets_out() -> None:
    cutter = ClauseCutter(settings("<|end|>"))
    found = [clause for piece in ("Hello there. ", "Bye. <", "|e", "nd|", "> more. ") for clause in cutter.push(piece)]
    assert found == ["Hello there. ", "Bye. "]
    assert cutter.stopped
    assert list(cutter.push("more. ")) == []
    assert list(cutter.close()) == []


def test_what_only_began_like_a_stop_string_is_spoken() -> None:
    assert "".join(clauses(["a <|e", "lse <|end"], settings("<|end|>"))) == "a <|else <|end"


@pytest.mark.parametrize(
    ("table", "error"),
    [
        ({"stop": [""]}, "length >= 1"),
        ({"first_words": 0}, ">= 1"),
        ({"min_words": -1}, ">= 1"),
        ({"max_words": 0}, ">= 1"),
    ],
)
def test_settings_that_could_cut_nothing_are_refused(table: dict[str, object], error: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=error):
        msgspec.convert({"kind": "text.clauses", "worker": "w", **table}, TextSettings)


# Tokens


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(assets.thinker_folder() / "tokenizer.json"))


def spoken(reply: ReplyText, ids: list[int]) -> list[str]:
    """The clauses of the ids given one at a time."""
    found = [clause.text for token_id in ids for clause in reply.push(TokenIds([token_id]))]
    return found + [clause.text for clause in reply.close()]


@pytest.mark.parametrize(
    "text",
    [
        "Hello there. How are you?",
        "naïve café. ",
        "😀 👨‍👩‍👧 🇯🇵. Done.",
        "你好,世界。日本語です。",
        "한국어 العربية हिन्दी",
        "🧪🧬🦠",
    ],
)
def test_characters_split_over_tokens_come_out_whole(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text).ids
    assert "".join(spoken(ReplyText(settings(), tokenizer), ids)) == text


def test_no_part_of_a_split_character_gets_out_before_the_whole(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("Ok. 🧬").ids
    assert [tokenizer.decode([token_id]) for token_id in ids[3:]] == ["\ufffd", "\ufffd"]
    for size in range(len(ids)):
        assert "".join(spoken(ReplyText(settings(), tokenizer), ids[:size])) in ("", "Ok", "Ok.", "Ok. ")


@given(ids=st.lists(st.one_of(st.integers(0, 300), st.integers(0, 49_151)), max_size=40))
def test_no_tokens_at_all_bring_a_replacement_character_or_an_error(tokenizer: Tokenizer, ids: list[int]) -> None:
    assert "\ufffd" not in "".join(spoken(ReplyText(settings(), tokenizer), ids))


@given(text=st.text(max_size=40), size=st.integers(1, 8))
def test_tokens_one_by_one_and_many_at_once_give_the_same_clauses(tokenizer: Tokenizer, text: str, size: int) -> None:
    ids = tokenizer.encode(text).ids
    reply = ReplyText(settings(), tokenizer)
    at_once = [
        clause.text for start in range(0, len(ids), size) for clause in reply.push(TokenIds(ids[start : start + size]))
    ]
    at_once += [clause.text for clause in reply.close()]
    assert at_once == spoken(ReplyText(settings(), tokenizer), ids)


def test_a_special_token_that_is_a_stop_string_ends_the_reply_and_others_are_not_spoken(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("Hello<|im_end|> there.<|im_start|>user\nMore. ").ids
    reply = ReplyText(settings("<|im_start|>"), tokenizer)
    assert spoken(reply, ids) == ["Hello there."]
    assert reply.ended


@given(text=texts)
def test_a_text_that_is_there_as_a_whole_is_cut_as_one_that_comes_in_pieces(text: str) -> None:
    assert text_stage.clauses(text, settings()) == [Clause(clause) for clause in clauses(list(text))]
