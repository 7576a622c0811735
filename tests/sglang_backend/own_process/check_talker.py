"""The talker stage with the shipped voice: what it says equals the plain loop, whoever else speaks."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.brought import brought, take
from tests.support.serving import kv_is_whole
from voice_runtime import assets
from voice_runtime.models.hibari import phonemizer
from voice_runtime.models.talker import Reader, Talker, generate, no_history
from voice_runtime.schedulers.messages import (
    Aborted,
    Chunk,
    Inquire,
    Ledger,
    NewRequest,
    StreamChunk,
    StreamDone,
)
from voice_runtime.stages import talker as talker_stage
from voice_runtime.stages.base import Stage
from voice_runtime.stages.payloads import Clause, Codes, Opening, Word
from voice_runtime.stages.talker import TalkerSettings

REPLIES = (
    ("The capital of France ", "is Paris, a large city ", "on the river Seine."),
    ("Two plus two ", "is four. ", "Shall I go on?"),
    ("Good morning.",),
)
BOOKS = 4


@pytest.fixture(scope="session")
def stage() -> Iterator[Stage]:
    stage = talker_stage.build(TalkerSettings(worker="talker"))
    stage.start()
    yield stage
    stage.stop()


@pytest.fixture(scope="session")
def voice() -> tuple[Talker, Any]:
    return Talker.load(assets.locate("voice-talker")), phonemizer()


def plain(voice: tuple[Talker, Any], clauses: Sequence[str]) -> list[list[int]]:
    """The frames of a reply by the plain loop, clause after clause."""
    talker, phonemes = voice
    reader, history, made = Reader(phonemes, talker), no_history(talker.config), []
    for at, clause in enumerate(clauses):
        chunk = reader.read(clause, last=at == len(clauses) - 1)
        assert chunk is not None
        codes = generate(talker.lm, history, chunk.conditioning)
        history = history.then(chunk.conditioning, codes, talker.config.history_frames)
        made.append(codes)
    frames: list[list[int]] = torch.cat(made).tolist()
    return frames


def say(stage: Stage, request_id: str, clauses: Sequence[str]) -> None:
    stage.receive(NewRequest(request_id, Opening()))
    for clause in clauses:
        stage.receive(StreamChunk(request_id, Clause(clause)))
    stage.receive(StreamDone(request_id))


def frames_of(items: Sequence[Codes]) -> list[list[int]]:
    frames: list[list[int]] = np.frombuffer(b"".join(item.codes for item in items), "<u2").reshape(-1, BOOKS).tolist()
    return frames


def ledger(stage: Stage) -> dict[str, int]:
    stage.receive(Inquire("ledger"))
    while not isinstance(message := take(stage), Ledger):
        pass
    return dict(message.held)


def test_a_reply_equals_the_plain_loop_clause_after_clause(stage: Stage, voice: tuple[Talker, Any]) -> None:
    for number, clauses in enumerate(REPLIES):
        say(stage, f"alone-{number}", clauses)
        assert frames_of(brought(stage, [f"alone-{number}"])[f"alone-{number}"]) == plain(voice, clauses)


def test_replies_at_the_same_time_equal_the_plain_loop(stage: Stage, voice: tuple[Talker, Any]) -> None:
    request_ids = [f"all-{number}" for number in range(len(REPLIES))]
    for request_id, clauses in zip(request_ids, REPLIES, strict=True):
        say(stage, request_id, clauses)
    said = brought(stage, request_ids)
    for request_id, clauses in zip(request_ids, REPLIES, strict=True):
        assert frames_of(said[request_id]) == plain(voice, clauses)


def test_a_clause_that_comes_late_goes_on_where_the_speech_was(stage: Stage, voice: tuple[Talker, Any]) -> None:
    """While nothing is left to say, nothing is generated and no page is held; the frames are those of one go."""
    stage.receive(NewRequest("late", Opening()))
    items: list[Codes] = []
    for at, clause in enumerate(REPLIES[0]):
        expected = len(plain(voice, REPLIES[0][: at + 1])) if at < 2 else None
        stage.receive(StreamChunk("late", Clause(clause)))
        if expected is None:
            stage.receive(StreamDone("late"))
            break
        while not (held := ledger_and_items(stage, items))["generations"] == 0 or not items:
            pass
        assert held["kv_available"] == held["kv_total"]
        assert held["live_requests"] == 1
    items += brought(stage, ["late"])["late"]
    assert len(frames_of(items)) > 40
    assert "".join(word.text for item in items for word in item.words) == "".join(REPLIES[0])


def ledger_and_items(stage: Stage, items: list[Codes]) -> dict[str, int]:
    stage.receive(Inquire("ledger"))
    while not isinstance(message := take(stage), Ledger):
        assert isinstance(message, Chunk)
        items.append(message.item)
    return dict(message.held)


def test_words_add_up_to_the_text_and_follow_each_other(stage: Stage) -> None:
    say(stage, "words", REPLIES[0])
    items = brought(stage, ["words"])["words"]
    words: list[Word] = [word for item in items for word in item.words]
    assert "".join(word.text for word in words) == "".join(REPLIES[0])
    assert len(words) == len("".join(REPLIES[0]).split())
    frames = [word.frame for word in words]
    assert frames == sorted(frames)
    assert 0 <= frames[0] < 8
    assert frames[-1] < len(frames_of(items))


def test_what_has_no_sound_stays_with_the_words_around_it(stage: Stage) -> None:
    say(stage, "silent", ("Well ", "... ", "- yes!"))
    words = [word.text for item in brought(stage, ["silent"])["silent"] for word in item.words]
    assert "".join(words) == "Well ... - yes!"


def test_an_abort_in_the_middle_frees_every_page_at_once(stage: Stage) -> None:
    say(stage, "aborted", ("This is a long sentence that is not going to be finished today. ",))
    assert isinstance(take(stage), Chunk)
    stage.scheduler.abort("aborted")
    while isinstance(message := take(stage), Chunk):
        pass
    assert isinstance(message, Aborted)
    held = ledger(stage)
    assert held["kv_available"] == held["kv_total"]
    assert kv_is_whole(held)


def test_a_reply_without_a_word_finishes_without_a_frame(stage: Stage) -> None:
    say(stage, "nothing", ("... ",))
    assert brought(stage, ["nothing"])["nothing"] == []
