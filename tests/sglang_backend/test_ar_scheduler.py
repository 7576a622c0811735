"""ArScheduler on SGLang's real scheduler and real weights."""

import random
import time
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.ar import Ar, assert_all_given_back, begin, new_id, outcomes, take
from voice_runtime import assets
from voice_runtime.errors import ConfigError, UnsupportedError
from voice_runtime.runner.generate import Generate
from voice_runtime.schedulers.messages import (
    Aborted,
    Chunk,
    Failed,
    Finished,
    Inquire,
    Ledger,
    NewRequest,
    StreamChunk,
)
from voice_runtime.sglang_backend.engine import EngineSettings

STOP = 2
QUESTIONS = (
    "What is the capital of France?",
    "Name a colour.",
    "Who wrote Hamlet?",
    "What is two plus two?",
    "Tell me about the sea.",
    "Why is the sky blue?",
    "What do cows eat?",
    "Say hello.",
)


def prompt(tokenizer: Any, question: str) -> list[int]:
    text = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


def ask(scheduler: Ar, ids: Sequence[int], tokens: int = 24, stop_ids: Sequence[int] = (STOP,)) -> str:
    return begin(scheduler, Generate(ids, tokens, stop_ids))


@pytest.fixture(scope="module")
def reference(tokenizer: Any) -> list[list[int]]:
    """transformers' greedy answers on the same weights in fp32."""
    from voice_runtime.sglang_backend import cpu_compat

    cpu_compat.prepare()
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(str(assets.thinker_folder()), dtype=torch.float32).eval()
    answers = []
    for question in QUESTIONS:
        ids = torch.tensor([prompt(tokenizer, question)])
        mask = torch.ones_like(ids)
        with torch.no_grad():
            out = model.generate(
                ids, attention_mask=mask, max_new_tokens=24, do_sample=False, eos_token_id=STOP, pad_token_id=STOP
            )
        answer = out[0, ids.shape[1] :].tolist()
        answers.append(answer[: answer.index(STOP)] if STOP in answer else answer)
    return answers


def test_greedy_tokens_equal_transformers_alone(scheduler: Ar, tokenizer: Any, reference: list[list[int]]) -> None:
    for question, expected in zip(QUESTIONS, reference, strict=True):
        request_id = ask(scheduler, prompt(tokenizer, question))
        tokens, end = outcomes(scheduler, [request_id])[request_id]
        assert isinstance(end, Finished)
        assert tokens == expected, question


def test_greedy_tokens_equal_transformers_with_eight_at_once(
    scheduler: Ar, tokenizer: Any, reference: list[list[int]]
) -> None:
    ids = [ask(scheduler, prompt(tokenizer, question)) for question in QUESTIONS]
    chunks = [take(scheduler) for _ in range(2 * len(ids))]
    scheduler.inbox.put(Inquire("ledger00"))
    while not isinstance(chunks[-1], Ledger):
        chunks.append(take(scheduler))
    assert chunks.pop().held["generations"] == len(QUESTIONS)  # type: ignore[union-attr]
    came = outcomes(scheduler, ids, chunks)
    assert [came[request_id][0] for request_id in ids] == reference
    assert_all_given_back(scheduler)


def test_tokens_come_out_step_by_step(scheduler: Ar, tokenizer: Any) -> None:
    ask(scheduler, prompt(tokenizer, QUESTIONS[4]), tokens=8, stop_ids=())
    chunks = 0
    while isinstance(message := take(scheduler), Chunk):
        assert len(message.item) == 1
        chunks += 1
    assert chunks == 8


def test_the_end_tells_what_the_model_computed_until_each_token(scheduler: Ar) -> None:
    """All of it lies within what the request took, and nothing is counted twice."""
    began_s = time.perf_counter()
    request_id = ask(scheduler, long_prompt(31, 150), tokens=5, stop_ids=())  # three chunks
    _, end = outcomes(scheduler, [request_id])[request_id]
    whole_ms = (time.perf_counter() - began_s) * 1000
    assert isinstance(end, Finished)
    names = ("first_compute_ms", *(f"compute_{number}_ms" for number in range(2, 6)))
    told_ms = [0, *(end.metrics[name] for name in names), whole_ms]
    assert told_ms == sorted(set(told_ms))
    assert [name for name in end.metrics if name.endswith("_ms")] == list(names)


def test_a_prompt_that_was_seen_before_is_taken_from_the_radix_cache(scheduler: Ar) -> None:
    ids = [random.Random(7).randrange(100, 40_000) for _ in range(200)]
    cached = []
    for _ in range(2):
        request_id = ask(scheduler, ids, tokens=2)
        _, end = outcomes(scheduler, [request_id])[request_id]
        assert isinstance(end, Finished)
        cached.append(end.metrics["cached_tokens"])
    assert cached[1] >= 199 > cached[0]


def long_prompt(seed: int, tokens: int) -> list[int]:
    return [random.Random(seed).randrange(100, 40_000) for _ in range(tokens)]


def test_abort_while_running_returns_every_page(scheduler: Ar, tokenizer: Any) -> None:
    request_id = ask(scheduler, prompt(tokenizer, QUESTIONS[4]), tokens=500, stop_ids=())
    assert isinstance(take(scheduler), Chunk)
    scheduler.abort(request_id)
    assert isinstance(outcomes(scheduler, [request_id])[request_id][1], Aborted)
    assert_all_given_back(scheduler)


def test_abort_in_the_middle_of_a_chunked_prefill_returns_every_page(scheduler: Ar) -> None:
    first = ask(scheduler, long_prompt(1, 8), tokens=100, stop_ids=())
    assert isinstance(take(scheduler), Chunk)
    prefilling = ask(scheduler, long_prompt(2, 450), tokens=8)  # 8 chunks of 64, each beside a token of the first
    for _ in range(3):
        assert take(scheduler).request_id == first
    scheduler.abort(prefilling)
    scheduler.abort(first)
    came = outcomes(scheduler, [prefilling, first])
    assert came[prefilling][0] == [], "it was not in prefill any more"
    assert all(isinstance(end, Aborted) for _, end in came.values())
    assert_all_given_back(scheduler)


def test_abort_while_waiting_leaves_the_running_ones_alone(scheduler: Ar) -> None:
    running = [ask(scheduler, long_prompt(seed, 20), tokens=12, stop_ids=()) for seed in range(8)]
    waiting = ask(scheduler, long_prompt(9, 20), tokens=12, stop_ids=())
    assert isinstance(take(scheduler), Chunk)
    scheduler.abort(waiting)
    came = outcomes(scheduler, [*running, waiting])
    assert isinstance(came[waiting][1], Aborted)
    assert came[waiting][0] == []
    assert all(isinstance(came[request_id][1], Finished) for request_id in running)
    assert_all_given_back(scheduler)


def test_abort_of_an_unknown_or_ended_request_and_a_second_abort_change_nothing(scheduler: Ar, tokenizer: Any) -> None:
    request_id = ask(scheduler, prompt(tokenizer, QUESTIONS[0]), tokens=4)
    outcomes(scheduler, [request_id])
    scheduler.abort(request_id)
    scheduler.abort("unknown0")
    running = ask(scheduler, prompt(tokenizer, QUESTIONS[4]), tokens=100, stop_ids=())
    take(scheduler)
    scheduler.abort(running)
    scheduler.abort(running)
    outcomes(scheduler, [running])
    assert_all_given_back(scheduler)
    assert len(scheduler.outbox) == 0


def test_a_request_over_the_length_limit_is_refused_with_the_numbers(scheduler: Ar) -> None:
    request_id = ask(scheduler, long_prompt(3, 500), tokens=61)
    _, end = outcomes(scheduler, [request_id])[request_id]
    assert isinstance(end, Failed)
    assert "500 tokens" in end.error
    assert "at most 553" in end.error


def test_a_request_over_the_queue_limit_is_refused_with_the_numbers(scheduler: Ar) -> None:
    # 8 run and 8 wait; the first of them decodes for long enough that all the others are there before one ends.
    ids = [ask(scheduler, long_prompt(seed, 4), tokens=20, stop_ids=()) for seed in range(100, 117)]
    came = outcomes(scheduler, ids)
    refused = [end.error for _, end in came.values() if isinstance(end, Failed)]
    assert len(refused) == 1
    assert "16 requests are running or waiting, limit 16" in refused[0]
    assert_all_given_back(scheduler)


def test_token_ids_outside_the_vocabulary_are_refused_with_the_numbers_and_cost_no_neighbour(
    scheduler: Ar, tokenizer: Any
) -> None:
    other = ask(scheduler, prompt(tokenizer, QUESTIONS[0]), tokens=6, stop_ids=())
    wrong = ask(scheduler, [5, 49_152], tokens=4)
    came = outcomes(scheduler, [other, wrong])
    end = came[wrong][1]
    assert isinstance(end, Failed)
    assert "token ids go from 5 to 49152, expected 0 to 49151" in end.error
    assert len(came[other][0]) == 6


def test_a_conversation_that_cannot_become_a_prompt_fails_alone(scheduler: Ar, tokenizer: Any) -> None:
    other = ask(scheduler, prompt(tokenizer, QUESTIONS[0]), tokens=6, stop_ids=())
    broken = new_id()
    scheduler.inbox.put(NewRequest(broken, Generate(["no token"], 4, ())))  # type: ignore[list-item]
    came = outcomes(scheduler, [other, broken])
    assert isinstance(came[broken][1], Failed)
    assert len(came[other][0]) == 6
    assert_all_given_back(scheduler)


def test_a_chunk_for_a_request_with_a_whole_prompt_fails_that_request_alone(scheduler: Ar, tokenizer: Any) -> None:
    other = ask(scheduler, prompt(tokenizer, QUESTIONS[0]), tokens=6, stop_ids=())
    request_id = ask(scheduler, prompt(tokenizer, QUESTIONS[4]), tokens=50, stop_ids=())
    scheduler.inbox.put(StreamChunk(request_id, Generate([1], 1, [])))
    came = outcomes(scheduler, [other, request_id])
    assert isinstance(came[request_id][1], Failed)
    assert len(came[other][0]) == 6
    assert_all_given_back(scheduler)


def test_a_dtype_that_is_not_served_is_refused(tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match="dtype is 'int8'"):
        EngineSettings(model=tmp_path, dtype="int8")


def test_overlap_scheduling_is_refused_with_the_reason(tmp_path: Any) -> None:
    with pytest.raises(UnsupportedError, match="inflight_middle_chunks"):
        EngineSettings(model=tmp_path, overlap=True)
