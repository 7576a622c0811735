"""The code2wav stage with the shipped voice: streamed equals offline, each piece has the words that begin in it."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.support.brought import brought, take
from voice_runtime import assets
from voice_runtime.audio.pcm import to_samples
from voice_runtime.models.code2wav import Code2Wav, offline
from voice_runtime.schedulers.messages import (
    Aborted,
    Chunk,
    Inquire,
    Ledger,
    NewRequest,
    StreamChunk,
    StreamDone,
)
from voice_runtime.stages import code2wav
from voice_runtime.stages.base import Stage
from voice_runtime.stages.code2wav import Code2WavSettings
from voice_runtime.stages.payloads import Codes, Opening, SpokenClause, Word

PCM_STEP = 1 / 32_768


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    stage = code2wav.build(Code2WavSettings(worker="voice", slots=4))
    stage.start()
    yield stage
    stage.stop()


@pytest.fixture(scope="module")
def vocoder() -> Code2Wav:
    return Code2Wav.load(assets.locate("voice-code2wav"))


def codes(seed: int, frames: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, 1024, (frames, 4))


def packed(frames: NDArray[np.int64], words: Sequence[Word] = ()) -> Codes:
    return Codes(frames.astype("<u2").tobytes(), list(words))


def joined(pieces: Sequence[SpokenClause]) -> NDArray[np.float32]:
    return to_samples(b"".join(piece.pcm for piece in pieces))


_replies = st.lists(st.tuples(st.integers(1, 24), st.lists(st.integers(1, 23), max_size=4)), min_size=1, max_size=4)
_numbers = iter(range(1_000_000))


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(replies=_replies)
def test_streamed_equals_offline_for_random_cuts_and_random_company(
    stage: Stage, vocoder: Code2Wav, replies: list[tuple[int, list[int]]]
) -> None:
    said = {f"{next(_numbers):08d}": (codes(at, frames), cuts) for at, (frames, cuts) in enumerate(replies)}
    for request_id, (frames, cuts) in said.items():
        stage.receive(NewRequest(request_id, Opening()))
        for piece in np.split(frames, sorted({cut for cut in cuts if cut < len(frames)})):
            stage.receive(StreamChunk(request_id, packed(piece)))
    for request_id in said:
        stage.receive(StreamDone(request_id))
    heard = brought(stage, list(said))
    for request_id, (frames, _) in said.items():
        found, expected = joined(heard[request_id]), offline(vocoder, frames)
        assert len(found) == len(expected) == 1_200 * len(frames)
        np.testing.assert_allclose(found, expected.clip(-1, 1 - PCM_STEP), atol=1e-4)


def test_each_piece_has_the_words_that_begin_in_it(stage: Stage) -> None:
    words = [Word("One ", 0), Word("two ", 1), Word("three ", 5), Word("four.", 19)]
    stage.receive(NewRequest("words", Opening()))
    stage.receive(StreamChunk("words", packed(codes(1, 20), words)))
    stage.receive(StreamDone("words"))
    begins: dict[str, int] = {}
    at = 0
    for piece in brought(stage, ["words"])["words"]:
        samples = len(piece.pcm) // 2
        assert all(0 <= word.sample < samples for word in piece.words)
        begins |= {word.text: at + word.sample for word in piece.words}
        at += samples
    assert begins == {"One ": 0, "two ": 1_200, "three ": 6_000, "four.": 22_800}


def test_an_abort_frees_the_slot_at_once_and_the_next_reply_in_it_begins_from_zero(
    stage: Stage, vocoder: Code2Wav
) -> None:
    for number in range(6):  # more than there are slots
        request_id = f"aborted-{number}"
        stage.receive(NewRequest(request_id, Opening()))
        stage.receive(StreamChunk(request_id, packed(codes(50 + number, 30))))
        assert isinstance(take(stage), Chunk)
        stage.scheduler.abort(request_id)
        while isinstance(message := take(stage), Chunk):
            pass
        assert isinstance(message, Aborted)
    stage.receive(Inquire("ledger"))
    held = take(stage)
    assert isinstance(held, Ledger)
    assert set(held.held.values()) == {0}
    frames = codes(9, 12)
    for number in range(4):  # in every slot
        stage.receive(NewRequest(f"fresh-{number}", Opening()))
        stage.receive(StreamChunk(f"fresh-{number}", packed(frames)))
    for number in range(4):
        stage.receive(StreamDone(f"fresh-{number}"))
    expected = offline(vocoder, frames).clip(-1, 1 - PCM_STEP)
    for pieces in brought(stage, [f"fresh-{number}" for number in range(4)]).values():
        np.testing.assert_allclose(joined(pieces), expected, atol=1e-4)
