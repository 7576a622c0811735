"""Drawing by seed: the right distribution, a function of seed and position alone, equal in every process."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tiny_llama import tiny_llama
from voice_runtime.errors import RequestError
from voice_runtime.runner.generate import Generate
from voice_runtime.runner.seeds import draw, fallback_seed


def sampled(**sampling: float | int) -> Generate:
    return Generate([1], 1, **{"temperature": 1.0, **sampling})  # type: ignore[arg-type]


def draws(logits: torch.Tensor, generate: Generate, count: int) -> torch.Tensor:
    """Counts of each token over `count` positions of one seed."""
    rows = logits.expand(count, -1).clone()
    ids = draw(rows, [generate] * count, torch.full((count,), 3), torch.arange(count))
    return torch.bincount(ids, minlength=logits.shape[-1])


def test_tokens_are_drawn_as_often_as_the_softmax_says() -> None:
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, 0.5])
    count = 20_000
    for temperature in (0.5, 1.0, 2.0):
        expected = torch.softmax(logits / temperature, -1) * count
        found = draws(logits, sampled(temperature=temperature), count)
        chi_squared = float(((found - expected) ** 2 / expected).sum())
        assert chi_squared < 18.5, f"{found} at {temperature}, expected {expected}"  # 0.1 % of right ones exceed it


def test_top_k_and_top_p_leave_out_the_unlikely() -> None:
    logits = torch.tensor([0.0, 3.0, 2.0, 1.0])  # probabilities 0.03, 0.64, 0.24, 0.09
    assert draws(logits, sampled(top_k=2), 2_000)[[0, 3]].sum() == 0
    assert draws(logits, sampled(top_k=2), 2_000)[2] > 0
    assert draws(logits, sampled(top_p=0.6), 2_000)[1] == 2_000
    assert draws(logits, sampled(top_p=0.9), 2_000)[0] == 0
    assert draws(logits, sampled(top_p=0.9), 2_000)[3] > 0


@given(seed=st.integers(0, 2**63 - 1), position=st.integers(0, 10_000), company=st.integers(0, 5))
def test_a_row_draws_the_same_whatever_else_is_in_the_batch(seed: int, position: int, company: int) -> None:
    logits = torch.randn(1 + company, 200, generator=torch.Generator().manual_seed(1))
    seeds = torch.tensor([seed, *range(company)])
    positions = torch.tensor([position] * (1 + company))
    batched = draw(logits.clone(), [sampled()] * (1 + company), seeds, positions)
    alone = draw(logits[:1].clone(), [sampled()], seeds[:1], positions[:1])
    assert batched[0] == alone[0]


def test_neighbouring_seeds_and_positions_draw_differently() -> None:
    logits = torch.zeros(500, 1_000)
    by_seed = draw(logits.clone(), [sampled()] * 500, torch.arange(500), torch.zeros(500, dtype=torch.int64))
    by_position = draw(logits.clone(), [sampled()] * 500, torch.zeros(500, dtype=torch.int64), torch.arange(500))
    for ids in (by_seed, by_position):  # 500 of 1,000: about 393 differ when drawn evenly
        assert 340 < len(set(ids.tolist())) < 440


def test_a_greedy_row_takes_the_likeliest() -> None:
    logits = torch.randn(4, 50)
    greedy = draw(logits.clone(), [sampled(temperature=0.0)] * 4, torch.arange(4), torch.arange(4))
    assert torch.equal(greedy, logits.argmax(-1))


def test_fallback_seeds_differ_by_request_and_fit() -> None:
    seeds = {fallback_seed(f"{number:08d}") for number in range(1_000)}
    assert len(seeds) == 1_000
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_a_row_without_a_seed_draws_the_same_in_two_processes_by_its_request_id(tmp_path: Path) -> None:
    tiny_llama(tmp_path)

    def run(request_id: str, hash_seed: str) -> str:
        command = [sys.executable, "-m", "tests.support.mixed_batch", str(tmp_path), request_id]
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
        return done.stdout.strip().splitlines()[-1]

    with ThreadPoolExecutor(2) as processes:
        first, again, other = processes.map(run, ("00000042", "00000042", "00000043"), ("1", "2", "1"))
    assert first.startswith("[")
    assert first == again
    assert first != other


@pytest.mark.parametrize(
    ("setting", "value"),
    [("min_p", 0.1), ("seed", -1), ("seed", 2**63), ("temperature", -0.1), ("top_p", 0.0), ("top_k", 0),
     ("top_k", 2.5), ("max_new_tokens", 2.5),
     ("repetition_penalty", 0.0)],
)  # fmt: skip
def test_what_cannot_be_honoured_is_refused_by_name(setting: str, value: float) -> None:
    with pytest.raises(RequestError, match=f"{setting} is {value}"):
        Generate(**{"ids": [1], "max_new_tokens": 1, setting: value})  # type: ignore[arg-type]
