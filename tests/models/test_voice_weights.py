"""The shipped weights: small enough to ship, and what they say is understood."""

from pathlib import Path

import numpy as np
import pytest
import torch

import voice_runtime
from tests.support.speech import recognise, word_error_rate
from voice_runtime.models.code2wav import RATE_HZ, Code2Wav, offline
from voice_runtime.models.hibari import phonemizer
from voice_runtime.models.talker import FRAME_HZ, Reader, Talker, generate, no_history

FOLDER = Path(voice_runtime.__file__).parent / "weights" / "voice"
PIECES = ("Hello there, ", "I am glad ", "that you called me this morning. ", "What can I do for you?")


@pytest.fixture(scope="module")
def talker() -> Talker:
    return Talker.load(FOLDER / "talker.safetensors")


@pytest.fixture(scope="module")
def vocoder() -> Code2Wav:
    return Code2Wav.load(FOLDER / "code2wav.safetensors")


def test_the_weights_are_small_and_have_their_licence_beside_them() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 26_000_000
    assert {"LICENSE", "NOTICE", "MODEL_CARD.md"} <= {path.name for path in FOLDER.iterdir()}


def test_a_second_recogniser_understands_a_reply_that_comes_in_pieces(talker: Talker, vocoder: Code2Wav) -> None:
    reader, history = Reader(phonemizer(), talker), no_history(talker.config)
    codes, told = [], []
    for piece in PIECES:
        chunk = reader.read(piece, piece is PIECES[-1])
        assert chunk is not None
        assert [word.text for word in chunk.words] == chunk.text.split()
        told.append(chunk.text)
        codes.append(generate(talker.lm, history, chunk.conditioning).numpy())
        history = history.then(chunk.conditioning, torch.from_numpy(codes[-1]), talker.config.history_frames)
    assert "".join(told) == "".join(PIECES)
    spoken = np.concatenate(codes)
    assert 3 < len(spoken) / FRAME_HZ < 9
    assert word_error_rate("".join(PIECES), recognise(offline(vocoder, spoken), RATE_HZ)) < 0.1


def test_nothing_clicks_where_chunks_meet(talker: Talker, vocoder: Code2Wav) -> None:
    """The fast changes of the sound around the borders of its chunks are like those inside them."""
    reader = Reader(phonemizer(), talker)
    chunk = reader.read("".join(PIECES), last=True)
    assert chunk is not None
    codes = generate(talker.lm, no_history(talker.config), chunk.conditioning).numpy()
    state, mask = vocoder.init_state(1), np.ones(1, np.bool_)
    pieces = [vocoder.decode(state, codes[None, at : at + 1], mask)[0] for at in range(len(codes))]
    sound = np.concatenate([*pieces, vocoder.flush(state, mask)[0]])
    change = np.diff(sound) ** 2
    frame = vocoder.frame_samples
    around = np.array([change[at - 12 : at + 12].mean() for at in range(frame, len(codes) * frame, frame)])
    inside = np.array([change[at - 12 : at + 12].mean() for at in range(frame // 2, len(codes) * frame, frame // 4)])
    assert around.mean() < 1.5 * inside.mean()
    assert around.max() <= inside.max()
