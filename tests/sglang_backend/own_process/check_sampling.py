"""Repetition penalty, seeds, retraction and aborts on a tiny Llama, served by SGLang's real scheduler."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.ar import Ar, assert_all_given_back, begin, outcomes, take
from tests.support.tiny_llama import greedy_answer, prompt, tiny_llama, tiny_scheduler
from voice_runtime.runner.generate import Generate
from voice_runtime.runner.runner import ModelRunner
from voice_runtime.schedulers.messages import Aborted, Chunk, Finished, Outbound

PENALTY = 1.4


class Recording(ModelRunner):
    """Keeps the logits of every forward pass of the model, whoever runs it."""

    logits: list[torch.Tensor]

    def attach(self, model: Any) -> None:
        self.logits = []
        model.logits_processor.register_forward_hook(
            lambda _module, _in, out: self.logits.append(out.next_token_logits.clone())
        )


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("llama")


@pytest.fixture(scope="session")
def reference(folder: Path) -> Any:
    return tiny_llama(folder)


@pytest.fixture(scope="session")
def runner() -> Recording:
    return Recording()


@pytest.fixture(scope="session")
def scheduler(folder: Path, reference: Any, runner: Recording) -> Iterator[Ar]:
    scheduler = tiny_scheduler(folder, lambda: runner)
    scheduler.start()
    yield scheduler
    scheduler.stop()


def answers(scheduler: Ar, *asked: Generate) -> list[list[int]]:
    ids = [begin(scheduler, generate) for generate in asked]
    came = outcomes(scheduler, ids)
    assert all(isinstance(end, Finished) for _, end in came.values()), came
    return [came[request_id][0] for request_id in ids]


def test_repetition_penalty_equals_transformers_alone(scheduler: Ar, reference: Any) -> None:
    for seed, tokens in ((1, 1), (2, 30), (3, 70)):  # 70: a prompt of three chunks
        generate = Generate(prompt(seed, tokens), 25, repetition_penalty=PENALTY)
        plain = Generate(prompt(seed, tokens), 25)
        assert answers(scheduler, generate) == [greedy_answer(reference, generate)]
        assert answers(scheduler, generate) != answers(scheduler, plain)


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    asked=st.lists(
        st.tuples(st.integers(1, 50), st.integers(1, 20), st.sampled_from([1.0, 1.2, PENALTY])), min_size=2, max_size=7
    ),
    seed=st.integers(0, 1_000),
)
def test_repetition_penalty_equals_transformers_in_any_batch(
    scheduler: Ar, reference: Any, asked: list[tuple[int, int, float]], seed: int
) -> None:
    generates = [
        Generate(prompt(seed + at, tokens), new, repetition_penalty=penalty)
        for at, (tokens, new, penalty) in enumerate(asked)
    ]
    assert answers(scheduler, *generates) == [greedy_answer(reference, generate) for generate in generates]
    assert_all_given_back(scheduler)


@pytest.mark.parametrize("penalty", [1.0, PENALTY])
def test_a_pool_that_is_too_small_retracts_and_every_answer_equals_transformers(
    scheduler: Ar, reference: Any, penalty: float
) -> None:
    generates = [Generate(prompt(40 + at, 20), 95, repetition_penalty=penalty) for at in range(6)]  # 690 on 400 pages
    ids = [begin(scheduler, generate) for generate in generates]
    came = outcomes(scheduler, ids)
    assert sum(end.metrics["retractions"] for _, end in came.values() if isinstance(end, Finished)) > 0
    assert [came[request_id][0] for request_id in ids] == [greedy_answer(reference, generate) for generate in generates]
    assert_all_given_back(scheduler)


def drawn(seed: int | None, at: int = 0, **sampling: Any) -> Generate:
    return Generate(prompt(60 + at, 20), 20, temperature=1.3, seed=seed, **sampling)


def test_a_seed_draws_the_same_tokens_again_and_another_seed_others(scheduler: Ar) -> None:
    [first], [again], [other] = (answers(scheduler, drawn(seed)) for seed in (7, 7, 8))
    assert first == again
    assert first != other


@pytest.mark.parametrize("sampling", [{}, {"top_k": 5}, {"top_p": 0.7}, {"top_k": 9, "top_p": 0.8}])
def test_a_seed_draws_the_same_tokens_alone_and_in_a_batch(scheduler: Ar, sampling: dict[str, Any]) -> None:
    [alone] = answers(scheduler, drawn(7, **sampling))
    company = [drawn(9, 1), drawn(None, 2), Generate(prompt(63, 50), 30), drawn(7, 3, top_k=3)]
    assert answers(scheduler, *company, drawn(7, **sampling))[-1] == alone


def test_a_seed_draws_the_same_tokens_after_a_retraction(scheduler: Ar) -> None:
    asked = [Generate(prompt(70 + at, 20), 95, temperature=1.0, seed=at) for at in range(6)]
    alone = [answers(scheduler, generate)[0] for generate in asked]
    ids = [begin(scheduler, generate) for generate in asked]
    came = outcomes(scheduler, ids)
    assert sum(end.metrics["retractions"] for _, end in came.values() if isinstance(end, Finished)) > 0
    assert [came[request_id][0] for request_id in ids] == alone


def test_a_greedy_request_beside_seeded_ones_stays_greedy(scheduler: Ar) -> None:
    greedy = Generate(prompt(80, 20), 20)
    [alone] = answers(scheduler, greedy)
    assert answers(scheduler, drawn(1), greedy, drawn(2))[1] == alone


# One request each: prompt tokens, new tokens, and after how many results it is aborted (None: never).
_scripts = st.lists(
    st.tuples(st.integers(1, 200), st.integers(1, 12), st.one_of(st.none(), st.integers(0, 6))), min_size=1, max_size=8
)


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(script=_scripts, seed=st.integers(0, 1_000))
def test_whatever_is_aborted_when_every_request_ends_once_and_all_is_given_back(
    scheduler: Ar, script: list[tuple[int, int, int | None]], seed: int
) -> None:
    requests = {begin(scheduler, Generate(prompt(seed + at, s[0]), s[1])): s for at, s in enumerate(script)}
    ends: dict[str, Outbound[list[int]]] = {}
    counts = dict.fromkeys(requests, 0)
    results = 0
    while len(ends) < len(requests):
        for request_id, (_, _, abort_after) in requests.items():
            if abort_after is not None and abort_after <= results:
                scheduler.abort(request_id)
        message = take(scheduler)
        results += 1
        assert message.request_id not in ends
        if isinstance(message, Chunk):
            counts[message.request_id] += len(message.item)
        else:
            ends[message.request_id] = message
    for request_id, (_, tokens, abort_after) in requests.items():
        assert isinstance(ends[request_id], Finished) or abort_after is not None
        assert counts[request_id] == tokens or isinstance(ends[request_id], Aborted)
    assert_all_given_back(scheduler)


def test_an_abort_in_the_round_of_its_retraction_takes_effect_at_once(scheduler: Ar) -> None:
    """A first run tells in which step which request is retracted; in the second it is aborted just then."""
    assert_all_given_back(scheduler)  # its thread has done the housekeeping of what was before
    engine = scheduler._engine  # driven from here while its thread sleeps
    upstream = engine._scheduler  # type: ignore[attr-defined]

    def run(name: str, abort_step: int = -1, victim: str = "") -> tuple[tuple[int, str], dict[str, int]]:
        upstream.flush_cache()
        for at in range(6):
            engine.add(f"{name}{at}", Generate(prompt(40 + at, 20), 95))
        step, retracted, ended = 0, (-1, ""), {}
        while not engine.is_idle():
            if step == abort_step:
                engine.abort(f"{name}{victim}")
            for output in engine.step():
                if output.finish_reason is not None:
                    ended[output.request_id.removeprefix(name)] = step
            thrown_out = [
                engine._live[req.rid].request_id  # type: ignore[attr-defined]
                for req in upstream.waiting_queue
                if req.retraction_count
            ]
            if thrown_out and retracted[0] < 0:
                retracted = step, thrown_out[0].removeprefix(name)
            step += 1
        return retracted, ended

    (step, victim), _ = run("first")
    assert step > 0
    _, ended = run("again", step, victim)
    assert ended[victim] - step < 5
    assert_all_given_back(scheduler)


def test_without_a_seed_tokens_and_logits_are_bit_identical_to_upstreams_own_worker(
    scheduler: Ar, runner: Recording
) -> None:
    """One batch through our runner, one through the worker that upstream would call; both from one random state."""
    asked = [
        Generate(prompt(90 + at, 15 + 20 * at), 15, temperature=at / 2, top_p=1 - at / 10, top_k=50) for at in range(4)
    ]
    assert_all_given_back(scheduler)
    engine = scheduler._engine  # driven from here while its thread sleeps, so that both batches are made alike
    upstream = engine._scheduler  # type: ignore[attr-defined]
    ours = upstream.model_worker
    runs: list[tuple[list[list[int]], list[torch.Tensor]]] = []
    for worker in (ours, upstream.tp_worker):
        upstream.model_worker = worker
        upstream.flush_cache()
        torch.manual_seed(4)
        runner.logits.clear()
        for at, generate in enumerate(asked):
            engine.add(f"{len(runs)}-{at}", generate)
        tokens: dict[str, list[int]] = {f"{len(runs)}-{at}": [] for at in range(len(asked))}
        while not engine.is_idle():
            for output in engine.step():
                tokens[output.request_id] += output.items
        runs.append((list(tokens.values()), list(runner.logits)))
    upstream.model_worker = ours
    (our_tokens, our_logits), (tokens_, logits) = runs
    assert our_tokens == tokens_
    assert [len(answer) for answer in our_tokens] == [15] * 4
    assert max(len(step) for step in logits) == 4, "no batch of four was made"
    assert len(our_logits) == len(logits)
    assert all(torch.equal(a, b) for a, b in zip(our_logits, logits, strict=True))
