"""What a request costs the model, by the steps that it took part in."""

import pytest

from voice_runtime.runner.batch import TIMED_TOKENS, Request
from voice_runtime.runner.generate import Generate


def request_of(steps: list[tuple[float, bool]]) -> Request:
    """A request after steps that lasted so many seconds; whether each drew its next token."""
    request = Request("key", "a", Generate([1, 2, 3], 100))
    for seconds, draws in steps:
        request.compute_s += seconds
        if draws:
            request.draw(7)
    return request


def test_the_first_token_costs_every_chunk_of_the_prompt_and_each_after_it_the_steps_until_then() -> None:
    request = request_of([(0.2, False), (0.3, False), (0.1, True), (0.05, True), (0.07, True)])
    expected = {"first_compute_ms": 600, "compute_2_ms": 650, "compute_3_ms": 720}
    assert request.compute_ms() == pytest.approx(expected)


def test_a_prompt_that_is_computed_again_after_a_retraction_counts_for_the_token_that_it_brings() -> None:
    request = request_of([(0.2, True), (0.1, False), (0.2, False), (0.1, True)])
    assert request.compute_ms() == pytest.approx({"first_compute_ms": 200, "compute_2_ms": 600})


def test_what_a_request_tells_does_not_grow_with_its_answer() -> None:
    request = request_of([(0.01, True)] * (TIMED_TOKENS + 50))
    assert len(request.compute_ms()) == TIMED_TOKENS
    assert request.compute_ms()[f"compute_{TIMED_TOKENS}_ms"] == pytest.approx(10 * TIMED_TOKENS)
