"""FeedbackARModelRunner on a tiny codec language model, served by SGLang's real scheduler."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.ar import Ar, assert_all_given_back, begin, ledger, outcomes, take
from tests.support.tiny_codec import MODELS, SIZES, plain_loop, speech, tiny_codec
from voice_runtime.runner.batch import Batch
from voice_runtime.runner.codec_lm import CodecLM
from voice_runtime.runner.feedback import CodecPrompt, FeedbackARModelRunner
from voice_runtime.runner.generate import Generate
from voice_runtime.schedulers.ar import ArScheduler, WholePrompt
from voice_runtime.schedulers.messages import Aborted, Chunk, Failed, Finished
from voice_runtime.sglang_backend.engine import EngineSettings, SglangEngine

KV_TOKENS = 200


class Tripping(FeedbackARModelRunner):
    """Cannot run a batch that holds a generation of these prompt lengths, or the last chunk of one of that length."""

    lengths: Sequence[int] = ()
    last_chunk_of = 0

    def _write_feedback(self, batch: Batch) -> None:
        for row in batch.rows:
            length = len(row.request.generate.ids)
            if length in self.lengths or (length == self.last_chunk_of and row.draws):
                raise ArithmeticError("told to trip")
        super()._write_feedback(batch)


@pytest.fixture(scope="session")
def network(tmp_path_factory: pytest.TempPathFactory) -> CodecLM:
    return tiny_codec(tmp_path_factory.mktemp("codec"))


@pytest.fixture(scope="session")
def runner() -> Tripping:
    return Tripping()


@pytest.fixture(scope="session")
def scheduler(network: CodecLM, runner: Tripping, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ar]:
    engine_settings = EngineSettings(
        model=Path(tmp_path_factory.getbasetemp() / "codec0" / "model"),
        models=MODELS,
        dtype="float32",
        kv_tokens=KV_TOKENS,
        context_tokens=190,
        chunked_prefill_tokens=16,
    )
    engine = SglangEngine(engine_settings, lambda: runner)
    scheduler: Ar = ArScheduler(engine, lambda generate: WholePrompt(generate, list))
    scheduler.start()
    yield scheduler
    scheduler.stop()


def test_frames_equal_the_plain_loop_alone(scheduler: Ar, network: CodecLM) -> None:
    for history in (0, 1, 7, 40):  # 40: a prompt of three chunks
        generate = speech(history, history, 12)
        request_id = begin(scheduler, generate)
        frames, end = outcomes(scheduler, [request_id])[request_id]
        assert isinstance(end, Finished)
        assert frames == plain_loop(network, generate)
    assert_all_given_back(scheduler)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    sizes=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 15)), min_size=2, max_size=8),
    seed=st.integers(0, 1_000),
)
def test_frames_equal_the_plain_loop_in_any_batch(
    scheduler: Ar, network: CodecLM, sizes: list[tuple[int, int]], seed: int
) -> None:
    asked = [speech(seed + at, history, frames) for at, (history, frames) in enumerate(sizes)]
    ids = [begin(scheduler, generate) for generate in asked]
    came = outcomes(scheduler, ids)
    for request_id, generate in zip(ids, asked, strict=True):
        assert came[request_id][0] == plain_loop(network, generate)
    assert_all_given_back(scheduler)


def test_frames_equal_the_plain_loop_after_a_retraction(scheduler: Ar, network: CodecLM) -> None:
    asked = [speech(50 + at, 10, 60) for at in range(7)]  # 7 x 70 positions on 200 pages
    ids = [begin(scheduler, generate) for generate in asked]
    came = outcomes(scheduler, ids)
    assert sum(end.metrics["retractions"] for _, end in came.values() if isinstance(end, Finished)) > 0
    for request_id, generate in zip(ids, asked, strict=True):
        assert came[request_id][0] == plain_loop(network, generate)
    assert_all_given_back(scheduler)


def test_an_abort_leaves_the_others_frames_as_they_are(scheduler: Ar, network: CodecLM) -> None:
    asked = [speech(70 + at, 5, 40) for at in range(4)]
    ids = [begin(scheduler, generate) for generate in asked]
    taken = [take(scheduler) for _ in range(9)]
    scheduler.abort(ids[1])
    came = outcomes(scheduler, ids, taken)
    assert isinstance(came.pop(ids[1])[1], Aborted)
    for request_id, generate in zip(ids, asked, strict=True):
        assert request_id == ids[1] or came[request_id][0] == plain_loop(network, generate)
    assert_all_given_back(scheduler)


@pytest.mark.parametrize("together", [False, True])
def test_equal_ids_with_other_conditioning_share_nothing(scheduler: Ar, network: CodecLM, together: bool) -> None:
    asked = [speech(seed, 20, 6) for seed in (90, 91)]
    assert asked[0].ids == asked[1].ids
    if together:
        ids = [begin(scheduler, generate) for generate in asked]
        came = outcomes(scheduler, ids)
    else:
        ids, came = [], {}
        for generate in asked:
            ids.append(begin(scheduler, generate))
            came |= outcomes(scheduler, ids[-1:])
    assert came[ids[0]][0] != came[ids[1]][0]
    for request_id, generate in zip(ids, asked, strict=True):
        frames, end = came[request_id]
        assert frames == plain_loop(network, generate)
        assert isinstance(end, Finished)
        assert end.metrics["cached_tokens"] == 0


def test_a_batch_that_cannot_be_run_fails_its_requests_alone_and_frees_their_pages(
    scheduler: Ar, network: CodecLM, runner: Tripping
) -> None:
    long_running = speech(100, 3, 50)
    first = begin(scheduler, long_running)
    taken = [take(scheduler) for _ in range(3)]
    scheduler.abort(first)
    came = outcomes(scheduler, [first], taken)
    for history in (8, 60):  # 60: in the middle of a chunked prefill
        runner.lengths = (history + 1,)
        broken = begin(scheduler, speech(101, history, 5))
        _, end = outcomes(scheduler, [broken])[broken]
        assert isinstance(end, Failed)
        assert "told to trip" in end.error
        assert_all_given_back(scheduler)
        runner.lengths = ()
        request_id = begin(scheduler, long_running)
        assert outcomes(scheduler, [request_id])[request_id][0] == plain_loop(network, long_running)
    assert isinstance(came[first][1], Aborted)
    assert_all_given_back(scheduler)


def test_a_mixed_batch_that_cannot_be_run_fails_all_its_rows_and_frees_their_pages(
    scheduler: Ar, network: CodecLM, runner: Tripping
) -> None:
    """Two that decode are in the batch with a prompt that trips; a third request comes afterwards."""
    decoding = [begin(scheduler, speech(140 + at, 3, 60)) for at in range(2)]
    taken = [take(scheduler) for _ in range(8)]
    runner.lengths = (7,)
    broken = begin(scheduler, speech(142, 6, 5))
    came = outcomes(scheduler, [*decoding, broken], taken)
    runner.lengths = ()
    assert all(isinstance(end, Failed) for _, end in came.values()), came
    assert_all_given_back(scheduler)
    again = speech(143, 6, 8)
    request_id = begin(scheduler, again)
    assert outcomes(scheduler, [request_id])[request_id][0] == plain_loop(network, again)


def test_a_failure_in_the_last_chunk_of_a_prompt_gives_back_the_chunks_before(
    scheduler: Ar, network: CodecLM, runner: Tripping
) -> None:
    runner.last_chunk_of = 41
    broken = begin(scheduler, speech(150, 40, 5))  # three chunks of 16
    _, end = outcomes(scheduler, [broken])[broken]
    runner.last_chunk_of = 0
    assert isinstance(end, Failed)
    assert_all_given_back(scheduler)
    again = speech(151, 40, 5)
    request_id = begin(scheduler, again)
    assert outcomes(scheduler, [request_id])[request_id][0] == plain_loop(network, again)
    assert_all_given_back(scheduler)


def test_an_abort_while_retracted_gives_everything_back_and_the_others_are_whole(
    scheduler: Ar, network: CodecLM
) -> None:
    """Of requests that fill the pool, the one that has stood still while others go on was thrown out of it."""
    asked = [speech(160 + at, 10, 60) for at in range(7)]
    ids = [begin(scheduler, generate) for generate in asked]
    counts = dict.fromkeys(ids, 0)
    taken, still = [], None
    since: dict[str, int] = dict.fromkeys(ids, 0)
    while still is None:
        message = take(scheduler)
        taken.append(message)
        assert isinstance(message, Chunk | Finished), message
        counts[message.request_id] += isinstance(message, Chunk)
        since = {request_id: quiet + 1 for request_id, quiet in since.items()} | {message.request_id: 0}
        still = next((r for r in ids if 0 < counts[r] < 60 and since[r] > 20), None)
    scheduler.abort(still)
    came = outcomes(scheduler, ids, taken)
    assert isinstance(came.pop(still)[1], Aborted)
    for request_id, generate in zip(ids, asked, strict=True):
        assert request_id == still or came[request_id][0] == plain_loop(network, generate)
    assert_all_given_back(scheduler)


def test_who_was_not_in_the_batch_is_served_after_it(scheduler: Ar, network: CodecLM, runner: Tripping) -> None:
    """The first chunk of a long prompt has the batch for itself; who waits behind it is not touched by its failure."""
    runner.lengths = (61,)
    broken = begin(scheduler, speech(110, 60, 3))
    waits = speech(120, 4, 9)
    behind = begin(scheduler, waits)
    came = outcomes(scheduler, [broken, behind])
    runner.lengths = ()
    assert isinstance(came[broken][1], Failed)
    assert came[behind][0] == plain_loop(network, waits)
    assert_all_given_back(scheduler)


def test_conditioning_of_the_wrong_shape_is_refused_with_found_and_expected(scheduler: Ar) -> None:
    prompt = CodecPrompt(torch.zeros(4, SIZES.width), torch.zeros(1, SIZES.books, dtype=torch.int64))
    request_id = begin(scheduler, Generate([0, 0], 4, conditioning=prompt))
    _, end = outcomes(scheduler, [request_id])[request_id]
    assert isinstance(end, Failed)
    assert "(4, 32)" in end.error
    assert "(5, 32)" in end.error
    assert ledger(scheduler)["kv_available"] > 0


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda history: history.index_fill(1, torch.tensor([1]), SIZES.codes), "history holds torch.int64 from"),
        (lambda history: history - SIZES.codes, "history holds torch.int64 from -"),
        (lambda history: history.float(), "history holds torch.float32"),
    ],
)
def test_a_history_that_is_no_codes_is_refused_and_costs_no_neighbour(
    scheduler: Ar, network: CodecLM, change: Any, error: str
) -> None:
    good, bad = speech(170, 4, 8), speech(171, 4, 8)
    wrong = replace(bad, conditioning=CodecPrompt(bad.conditioning.frames, change(bad.conditioning.history)))
    ids = [begin(scheduler, good), begin(scheduler, wrong)]
    came = outcomes(scheduler, ids)
    end = came[ids[1]][1]
    assert isinstance(end, Failed)
    assert error in end.error
    assert came[ids[0]][0] == plain_loop(network, good)


def test_a_repetition_penalty_over_stand_ins_is_refused(scheduler: Ar) -> None:
    request_id = begin(scheduler, speech(172, 4, 8, repetition_penalty=1.2))
    _, end = outcomes(scheduler, [request_id])[request_id]
    assert isinstance(end, Failed)
    assert "repetition_penalty is 1.2, expected 1" in end.error


def test_frames_come_out_one_by_one(scheduler: Ar) -> None:
    begin(scheduler, speech(130, 0, 5))
    sizes = []
    while isinstance(message := take(scheduler), Chunk):
        sizes.append(len(message.item))
        assert all(len(frame) == SIZES.books for frame in message.item)
    assert sizes == [1] * 5
