"""The talker on tiny random weights: chunks know nothing of what comes later, and every word has its frames."""

import re

import pytest
import torch
from torch import Tensor

from voice_runtime.models.talker import (
    PAD,
    SPACE,
    Chunk,
    Reader,
    Talker,
    TalkerConfig,
    generate,
    no_history,
    slot_features,
    whole_frames,
)
from voice_runtime.runner.codec_lm import NO_CODE

TINY = TalkerConfig(
    vocabulary=64, width=16, heads=2, layers=2, hidden=24, encoder_layers=2, encoder_kernel=3, codes=12,
    left_phonemes=10, history_frames=5,
)  # fmt: skip


MARKS = {" ": SPACE, ",": 3, ".": 4}


class Letters:
    """Phonemizes as Hibari does, but a letter is its own phoneme; "12" is two words and "1 2" one."""

    def phonemize(self, text: str) -> list[str]:
        spelled = text.replace("1 2", "twelve").replace("12", "one two")
        return [part.strip() for part in re.findall(r"[^.]+\.?", spelled) if part.strip()]

    def ids(self, phonemes: str) -> list[int]:
        return [PAD, *(MARKS.get(letter, 20 + ord(letter) % 40) for letter in phonemes), PAD]


def _talker() -> Talker:
    torch.manual_seed(0)
    talker = Talker(TINY)
    talker.eval()
    with torch.no_grad():
        talker.front.duration[-1].bias.fill_(1.0)
    return talker


TALKER = _talker()


def _read(*pieces: str, last: bool = False) -> list[Chunk]:
    reader = Reader(Letters(), TALKER)
    chunks = [reader.read(piece, last and index == len(pieces) - 1) for index, piece in enumerate(pieces)]
    return [chunk for chunk in chunks if chunk is not None]


def _codes(seed: int, frames: int) -> Tensor:
    return torch.randint(TINY.codes, (frames, TINY.books), generator=torch.Generator().manual_seed(seed))


def test_a_chunk_is_the_same_whatever_text_comes_after_it() -> None:
    first, second = _read("hello there,", "how are you.")[0], _read("hello there,", "what is this.")[0]
    assert torch.equal(first.conditioning, second.conditioning)
    assert first.words == second.words


def test_a_chunk_hears_what_was_said_before_it_but_only_so_far_back() -> None:
    after = [_read(before, "how are you.")[1].conditioning for before in ("hello there,", "hello thera,", "so")]
    assert after[0].shape != after[1].shape or not torch.equal(after[0], after[1])
    far = [_read(first, "and the same again", "how are you.")[2].conditioning for first in ("hello", "other")]
    assert torch.equal(far[0], far[1])


def test_every_word_has_frames_in_order_and_within_the_chunk() -> None:
    for chunk in _read("it is 12 or ", "1 2 now. then ", "stop"):
        spans = [(word.first_frame, word.end_frame) for word in chunk.words]
        assert all(0 <= first < end <= chunk.frames for first, end in spans)
        assert spans == sorted(spans)
    texts = [
        [word.text for word in chunk.words] for chunk in _read("it is 12 or ", "1 2 now. then ", "stop", last=True)
    ]
    assert texts == [["it", "is", "12"], ["or", "1", "2", "now."], ["then", "stop"]]


def test_the_last_word_of_a_piece_in_mid_sentence_is_seen_and_spoken_with_the_next_piece() -> None:
    this, other = (_read("how are you, my ", f"{word} friend is ", "here.", last=True) for word in ("dear", "near"))
    assert [chunk.text for chunk in this] == ["how are you, ", "my dear friend ", "is here."]
    assert torch.equal(this[0].conditioning, other[0].conditioning)  # only the word that was there can be seen
    seen, unseen = (_read(text, "here.")[0] for text in ("so we see them ", "so we see him "))
    assert [word.text for word in seen.words] == [word.text for word in unseen.words] == ["so", "we", "see"]
    assert seen.conditioning.shape != unseen.conditioning.shape or not torch.equal(
        seen.conditioning, unseen.conditioning
    )


def test_punctuation_the_end_and_a_single_word_keep_nothing_back() -> None:
    for pieces in (("well, ", "yes."), ("stop. ", "now."), ("well ", "yes.")):
        assert [chunk.text for chunk in _read(*pieces)] == list(pieces)
    assert [chunk.text for chunk in _read("so it is", last=True)] == ["so it is"]


def test_what_is_kept_back_is_there_for_the_end_of_the_reply() -> None:
    reader = Reader(Letters(), TALKER)
    first = reader.read("so it ")
    rest = reader.read("", last=True)
    assert first is not None
    assert rest is not None
    assert (first.text, rest.text, reader.kept_back) == ("so ", "it ", "")


def test_only_the_end_of_a_sentence_or_of_the_reply_ends_with_silence() -> None:
    kept: list[list[int]] = []

    class Recording(Reader):
        def read(self, text: str, last: bool = False) -> Chunk | None:
            chunk = super().read(text, last)
            kept.append(self._before)
            return chunk

    reader = Recording(Letters(), TALKER)
    reader.read("hi")
    reader.read("you.")
    reader.read("so", last=True)
    assert kept[0][0] == PAD
    assert kept[0][-1] != PAD
    assert kept[1][3:5] == [SPACE, 20 + ord("y") % 40]
    assert kept[1][-1] == PAD
    assert kept[2][-1] == PAD


@pytest.mark.parametrize("text", ["", " ", "...", "!"])
def test_a_piece_with_nothing_to_say_is_no_chunk(text: str) -> None:
    assert Reader(Letters(), TALKER).read(text) is None


def test_durations_are_whole_frames_and_no_phoneme_is_left_out() -> None:
    slots = whole_frames(torch.tensor([-3.0, 0.0, 1.1, 2.0]))
    assert slots.tolist() == [1, 1, 3, 7]
    assert whole_frames(torch.tensor([0.0])).tolist() == [2]
    assert slot_features(slots)[:3, 2].tolist() == [1.0, 1.0, 1.0]


def test_exactly_as_many_frames_are_made_as_were_predicted() -> None:
    (chunk,) = _read("hello there.")
    codes = generate(TALKER.lm, no_history(TINY), chunk.conditioning)
    assert codes.shape == (chunk.frames, TINY.books)
    assert 0 <= int(codes.min()) <= int(codes.max()) < TINY.codes


def test_the_cached_loop_chooses_what_one_pass_over_all_positions_would() -> None:
    history = no_history(TINY).then(torch.randn(5, TINY.width), _codes(1, 5), TINY.history_frames)
    conditioning = torch.randn(7, TINY.width)
    codes = generate(TALKER.lm, history, conditioning)
    previous = torch.cat([torch.full((1, TINY.books), NO_CODE), history.codes, codes[:-1]])
    inputs = TALKER.lm.inputs(torch.cat([history.conditioning, conditioning]), previous)
    hidden = TALKER.lm.states(inputs[None])[0, 5:]
    for book in range(TINY.books):
        logits = TALKER.lm.book_logits(hidden, codes[:, :book])
        assert torch.equal(logits.argmax(-1), codes[:, book])


def test_history_keeps_the_last_frames_only() -> None:
    history = (
        no_history(TINY)
        .then(torch.randn(4, TINY.width), _codes(1, 4), 5)
        .then(torch.randn(3, TINY.width), _codes(2, 3), 5)
    )
    assert len(history.conditioning) == 5
    assert torch.equal(history.codes, torch.cat([_codes(1, 4)[-2:], _codes(2, 3)]))
