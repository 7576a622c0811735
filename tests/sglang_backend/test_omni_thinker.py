"""ThinkerModelRunner on SGLang's real scheduler and a tiny omni thinker, against transformers' own forward pass."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

from tests.sglang_backend import omni_process
from tests.sglang_backend.omni_process import Computed, Done, Outcome
from tests.support.serving import kv_is_whole


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Done]:
    """What a fresh process did, by the name of the act."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as fresh:
        return fresh.submit(omni_process.run, tmp_path_factory.mktemp("omni")).result()


def assert_equals_transformers(outcome: Outcome) -> None:
    assert outcome.end == "finished"
    assert outcome.expected is not None
    assert outcome.tokens == outcome.expected.tokens
    np.testing.assert_allclose(np.stack(outcome.logits), outcome.expected.logits, atol=1e-3, rtol=0)


def assert_all_equal_transformers(done: Done) -> None:
    for outcome in done.outcomes:
        assert_equals_transformers(outcome)
    assert_all_given_back(done)


def assert_all_given_back(done: Done) -> None:
    assert kv_is_whole(done.held), done.held
    assert done.held["live_requests"] == done.held["inbox_messages"] == 0


def begins_inside(computed: Sequence[Computed], span: tuple[int, int]) -> bool:
    return any(span[0] < row.start < span[1] for row in computed)


@pytest.mark.parametrize(("at", "media"), [(0, 1), (1, 1), (2, 2), (3, 0)], ids=["audio", "image", "both", "text"])
def test_a_prompt_alone_equals_transformers(done: dict[str, Done], at: int, media: int) -> None:
    outcome = done["alone"].outcomes[at]
    assert len(outcome.prompt.spans) == media
    assert_equals_transformers(outcome)


def test_chunks_that_begin_inside_audio_and_inside_an_image_equal_transformers(done: dict[str, Done]) -> None:
    audio, image, both, _ = done["alone"].outcomes
    assert begins_inside(audio.computed, audio.prompt.spans[0])
    assert begins_inside(image.computed, image.prompt.spans[0])
    assert begins_inside(both.computed, both.prompt.spans[1])
    assert_all_equal_transformers(done["alone"])


def test_text_images_and_audio_in_one_batch_equal_transformers(done: dict[str, Done]) -> None:
    outcomes = done["batched"].outcomes
    assert all(max(row.rows for row in outcome.computed) == len(outcomes) for outcome in outcomes)
    mixed = [row for row in outcomes[-1].computed if row.end - row.start > 1 and row.rows > 1]
    assert mixed, "no chunk of the last prompt had company"
    assert_all_equal_transformers(done["batched"])


def test_a_text_prompt_seen_before_is_taken_from_the_radix_cache(done: dict[str, Done]) -> None:
    again = done["batched"].outcomes[0]
    assert again.prompt.ids == done["alone"].outcomes[3].prompt.ids
    assert again.cached_tokens == len(again.prompt.ids) - 1
    assert_equals_transformers(again)


@pytest.mark.parametrize("act", ["equal_ids_in_turn", "equal_ids_at_once"])
def test_equal_ids_with_other_embeddings_share_nothing(done: dict[str, Done], act: str) -> None:
    first, second = done[act].outcomes
    assert first.prompt.ids == second.prompt.ids
    assert first.tokens != second.tokens
    assert second.cached_tokens == 0
    assert_all_equal_transformers(done[act])


def test_abort_in_decoding_and_inside_audio_returns_every_page(done: dict[str, Done]) -> None:
    decoding, prefilling = done["aborted"].outcomes
    assert decoding.tokens
    assert prefilling.computed
    assert prefilling.computed[-1].end < prefilling.prompt.spans[0][1]
    assert [outcome.end for outcome in (decoding, prefilling)] == ["aborted"] * 2
    assert_all_given_back(done["aborted"])


def test_what_is_read_again_after_retraction_equals_transformers(done: dict[str, Done]) -> None:
    outcome = next(outcome for outcome in done["retracted"].outcomes if outcome.retractions)
    image, audio = outcome.prompt.spans
    again = outcome.computed[next(at for at, row in enumerate(outcome.computed[1:], 1) if row.start == 0) :]
    assert begins_inside(again, image)
    assert begins_inside(again, audio)
    assert any(row.end > len(outcome.prompt.ids) + 1 and row.end - row.start > 1 for row in again), "no answer read"
    assert_all_equal_transformers(done["retracted"])


def test_embeddings_of_the_wrong_width_are_refused_with_the_numbers_and_cost_no_other(done: dict[str, Done]) -> None:
    sound, narrow = done["refused"].outcomes
    assert_equals_transformers(sound)
    assert narrow.end == "RequestError: embeds of span 0 have shape (33, 63), expected (1 or more, 64)"
    assert_all_given_back(done["refused"])
