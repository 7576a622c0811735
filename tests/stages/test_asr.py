"""The production recognition stage: prepared, batched behind the gate, each text as alone."""

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from tests.support.speech import synthesise
from voice_runtime.audio.pcm import to_pcm, to_samples
from voice_runtime.schedulers.messages import Abort, Aborted, Failed, Finished, Inquire, Ledger, NewRequest
from voice_runtime.stages import asr
from voice_runtime.stages.base import BuildCount, Stage
from voice_runtime.stages.payloads import Transcript, Utterance

TEXTS = ("What is the capital of Italy?", "How many legs does a dog have?")


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    stage = asr.build(asr.AsrSettings(worker="w"))
    stage.start()
    yield stage
    stage.stop()


def utterance(text: str) -> Utterance:
    return Utterance(to_pcm(synthesise(text, "flite")))


def ends(stage: Stage, count: int) -> dict[str, object]:
    results = stage.results()
    return {message.request_id: message for message in (next(results) for _ in range(count))}


def text_of(end: object) -> str:
    assert isinstance(end, Finished)
    assert isinstance(end.result, Transcript)
    return end.result.text


def test_two_callers_at_once_get_the_texts_that_each_gets_alone(stage: Stage) -> None:
    alone = []
    for number, text in enumerate(TEXTS):
        stage.receive(NewRequest(f"alone-{number}", utterance(text)))
        alone.append(text_of(ends(stage, 1)[f"alone-{number}"]))
    assert "capital" in alone[0]

    barrier = threading.Barrier(2)

    def call(number: int) -> None:
        barrier.wait()
        stage.receive(NewRequest(f"both-{number}", utterance(TEXTS[number])))

    callers = [threading.Thread(target=call, args=(number,)) for number in range(2)]
    for caller in callers:
        caller.start()
    both = ends(stage, 2)
    for caller in callers:
        caller.join()
    assert [text_of(both[f"both-{number}"]) for number in range(2)] == alone


def test_two_callers_are_recognised_in_batches_of_two(stage: Stage) -> None:
    """The gate holds the first for the second, whose audio is being prepared: at the latest in one of ten rounds."""
    clips = [utterance(text) for text in TEXTS]
    sizes = []
    for turn in range(10):
        for number, clip in enumerate(clips):
            stage.receive(NewRequest(f"turn-{turn}-{number}", clip))
        for end in ends(stage, 2).values():
            assert isinstance(end, Finished)
            sizes.append(end.metrics.get("batch", 1))
    assert max(sizes) == 2, "nobody ever waited for company that was on its way"


def test_a_lone_caller_is_recognised_alone(stage: Stage) -> None:
    stage.receive(NewRequest("lone", utterance(TEXTS[0])))
    end = ends(stage, 1)["lone"]
    assert isinstance(end, Finished)
    assert "batch" not in end.metrics


def test_a_clip_that_is_too_long_fails_alone_with_found_and_expected(stage: Stage) -> None:
    stage.receive(NewRequest("too-long", Utterance(bytes(2 * 16_000 * 31))))
    stage.receive(NewRequest("is-right", utterance(TEXTS[0])))
    both = ends(stage, 2)
    failed = both["too-long"]
    assert isinstance(failed, Failed)
    assert "31" in failed.error
    assert "30" in failed.error
    assert "capital" in text_of(both["is-right"])


def test_an_utterance_that_cannot_be_prepared_fails_and_is_not_counted_any_more(stage: Stage) -> None:
    stage.receive(NewRequest("odd-byte", Utterance(b"\0" * 3_201)))
    assert isinstance(ends(stage, 1)["odd-byte"], Failed)
    assert stage.building() == 0


def test_an_abort_does_not_overtake_its_request_in_preparation(stage: Stage) -> None:
    for number in range(20):
        stage.receive(NewRequest(f"abort-{number:02d}", utterance(TEXTS[0])))
        stage.receive(Abort(f"abort-{number:02d}"))
    came = ends(stage, 20)
    assert sum(isinstance(end, Aborted) for end in came.values()) >= 19  # the first may be under way already
    stage.receive(Inquire("ledger"))
    ledger = next(stage.results())
    assert isinstance(ledger, Ledger)
    assert set(ledger.held.values()) == {0}


def test_a_request_in_the_inbox_is_never_counted_as_being_built() -> None:
    building = BuildCount()
    building.accept()
    seen = []
    with building.done():
        reader = threading.Thread(target=lambda: seen.append(building()))
        reader.start()  # the scheduler's thread asks while the request is put: it is told only afterwards
    reader.join()
    assert seen == [0]


def test_preparation_lifts_a_quiet_voice_and_leaves_silence_alone() -> None:
    quiet = (np.sin(np.arange(16_000) / 20) * 0.05 + 0.1).astype(np.float32)
    prepared = asr.prepare(Utterance(to_pcm(quiet)))
    assert abs(np.abs(prepared).max() - 0.7) < 0.01
    assert abs(prepared.mean()) < 0.01
    assert not asr.prepare(Utterance(bytes(3_200))).any()
    loud = to_samples(to_pcm((np.sin(np.arange(16_000) / 20) * 0.9).astype(np.float32)))
    assert np.abs(asr.prepare(Utterance(to_pcm(loud)))).max() == pytest.approx(0.9, abs=0.02)


def test_a_clip_shorter_than_the_recogniser_takes_is_filled_up_with_silence() -> None:
    assert asr.prepare(Utterance(b"\x01\x02" * 10)).size == 1_600
    assert asr.prepare(Utterance(b"\x01\x02" * 5_000)).size == 5_000
