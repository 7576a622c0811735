"""One-step look-ahead on SGLang's real scheduler gives the tokens of the synchronous order, and every page back."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.ar import Ar, assert_all_given_back, begin, outcomes, take
from tests.support.tiny_llama import greedy_answer, prompt, tiny_llama, tiny_scheduler
from voice_runtime.runner.batch import Batch
from voice_runtime.runner.generate import Generate
from voice_runtime.runner.runner import ModelRunner
from voice_runtime.schedulers.messages import Aborted, Failed, Finished


class Tripping(ModelRunner):
    """Cannot run a batch in which a request of `trip` prompt tokens has drawn five tokens, nor read one of `lost`."""

    trip = 0
    lost = 0

    def before_prefill(self, batch: Batch) -> None:
        if any(len(row.request.generate.ids) == self.lost for row in batch.rows):
            raise ArithmeticError("told to trip")

    def before_decode(self, batch: Batch) -> None:
        for row in batch.rows:
            if len(row.request.generate.ids) == self.trip and len(row.request.sampled) == 5:
                raise ArithmeticError("told to trip")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("llama")


@pytest.fixture(scope="session")
def reference(folder: Path) -> Any:
    return tiny_llama(folder)


@pytest.fixture(scope="session")
def runner() -> Tripping:
    return Tripping()


@pytest.fixture(scope="session")
def scheduler(folder: Path, reference: Any, runner: Tripping) -> Iterator[Ar]:
    scheduler = tiny_scheduler(folder, lambda: runner, look_ahead=True)
    scheduler.start()
    yield scheduler
    scheduler.stop()


_requests = st.lists(
    st.tuples(
        st.integers(1, 70),
        st.integers(1, 25),
        st.sampled_from([1.0, 1.0, 1.3]),
        st.lists(st.integers(0, 119), max_size=9),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(asked=_requests, seed=st.integers(0, 1_000), apart=st.integers(0, 6))
def test_tokens_equal_the_synchronous_ones_whatever_comes_and_ends_when(
    scheduler: Ar, reference: Any, asked: list[tuple[int, int, float, list[int]]], seed: int, apart: int
) -> None:
    """apart: results that are awaited between one request and the next."""
    generates = [
        Generate(prompt(seed + at, tokens), new, stop_ids, repetition_penalty=penalty)
        for at, (tokens, new, penalty, stop_ids) in enumerate(asked)
    ]
    ids, taken = [], []
    for generate in generates:
        ids.append(begin(scheduler, generate))
        taken += [message for _ in range(apart) if (message := scheduler.outbox.take(0.01)) is not None]
    came = outcomes(scheduler, ids, taken)
    for request_id, generate in zip(ids, generates, strict=True):
        tokens, end = came[request_id]
        assert isinstance(end, Finished)
        assert tokens == greedy_answer(reference, generate)
    assert_all_given_back(scheduler)


def test_steps_are_really_looked_ahead_of_and_rows_that_ended_are_taken_out(scheduler: Ar) -> None:
    """A request of four tokens beside a long one: a fifth was drawn for it, and it is nowhere."""
    upstream = scheduler._engine._scheduler  # type: ignore[attr-defined]
    short, long = begin(scheduler, Generate(prompt(1, 6), 4)), begin(scheduler, Generate(prompt(2, 6), 40))
    taken, pending = [], 0
    while not isinstance(message := take(scheduler), Finished):
        taken.append(message)
        pending += upstream.launched is not None
    came = outcomes(scheduler, [short, long], [*taken, message])
    assert pending > 0
    assert len(came[short][0]) == 4
    end = came[short][1]
    assert isinstance(end, Finished)
    assert end.metrics["completion_tokens"] == 4
    assert len(came[long][0]) == 40
    assert_all_given_back(scheduler)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(after=st.integers(0, 12), seed=st.integers(0, 100))
def test_an_abort_with_a_result_pending_gives_everything_back(
    scheduler: Ar, reference: Any, after: int, seed: int
) -> None:
    other = Generate(prompt(seed, 20), 15)
    ids = [begin(scheduler, Generate(prompt(seed + 1, 30), 60)), begin(scheduler, other)]
    taken = [take(scheduler) for _ in range(after)]
    scheduler.abort(ids[0])
    came = outcomes(scheduler, ids, taken)
    assert isinstance(came[ids[0]][1], Aborted)
    assert came[ids[1]][0] == greedy_answer(reference, other)
    assert_all_given_back(scheduler)


def test_a_full_pool_retracts_and_every_answer_is_whole(scheduler: Ar, reference: Any) -> None:
    generates = [Generate(prompt(40 + at, 20), 95) for at in range(6)]  # 690 on 400 pages
    ids = [begin(scheduler, generate) for generate in generates]
    came = outcomes(scheduler, ids)
    assert sum(end.metrics["retractions"] for _, end in came.values() if isinstance(end, Finished)) > 0
    assert [came[request_id][0] for request_id in ids] == [greedy_answer(reference, generate) for generate in generates]
    assert_all_given_back(scheduler)


def test_a_failing_step_does_not_fail_a_request_that_ended_in_the_step_before(
    scheduler: Ar, runner: Tripping, reference: Any
) -> None:
    runner.trip = 9
    ended, broken = Generate(prompt(1, 6), 5), Generate(prompt(2, 9), 30)
    ids = [begin(scheduler, ended), begin(scheduler, broken)]
    came = outcomes(scheduler, ids)
    runner.trip = 0
    assert isinstance(came[ids[1]][1], Failed)
    assert isinstance(came[ids[0]][1], Finished)
    assert came[ids[0]][0] == greedy_answer(reference, ended)
    assert_all_given_back(scheduler)


def test_pages_of_a_batch_that_failed_are_not_read_by_an_equal_prompt(
    scheduler: Ar, runner: Tripping, reference: Any
) -> None:
    generate = Generate(prompt(77, 21), 6)
    runner.lost = 21
    broken = begin(scheduler, generate)
    assert isinstance(outcomes(scheduler, [broken])[broken][1], Failed)
    runner.lost = 0
    again = begin(scheduler, generate)
    tokens, end = outcomes(scheduler, [again])[again]
    assert isinstance(end, Finished)
    assert end.metrics["cached_tokens"] == 0
    assert tokens == greedy_answer(reference, generate)
