"""Embeddings given to a language model by a hook, on a small module that is called as upstream calls its own."""

from types import SimpleNamespace

import pytest
import torch

from voice_runtime.errors import UnsupportedError
from voice_runtime.runner.batch import EmbeddingSizes, Replacement
from voice_runtime.sglang_backend.embeddings import LanguageModelInputs, find_inputs

REPLACEMENT = Replacement(torch.tensor([1, 3]), torch.ones(2, 4), torch.stack([torch.full((2, 4), 2.0)] * 3))


class LanguageModel(torch.nn.Module):
    """Gives back what it is called with."""

    config = SimpleNamespace(hidden_size=4, max_position_embeddings=32)
    deepstack_embed_to_decoder_layer = range(3)

    def forward(
        self, input_embeds: torch.Tensor, input_deepstack_embeds: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        return input_embeds, input_deepstack_embeds


def test_a_pass_reads_the_replacement_where_it_is_for_and_the_next_pass_does_not() -> None:
    model = LanguageModel()
    inputs = LanguageModelInputs(model)
    with inputs.replaced(REPLACEMENT):
        embeds, deepstack = model(input_embeds=torch.zeros(5, 4))
    assert embeds.sum(dim=1).tolist() == [0, 4, 0, 4, 0]
    assert deepstack.shape == (5, 12)
    assert deepstack.sum(dim=1).tolist() == [0, 24, 0, 24, 0]
    assert model(input_embeds=torch.zeros(5, 4))[0].sum() == 0


def test_a_pass_that_does_not_call_the_language_model_is_refused() -> None:
    with (
        pytest.raises(UnsupportedError, match="called the language model 0 times, expected once"),
        LanguageModelInputs(LanguageModel()).replaced(REPLACEMENT),
    ):
        pass


def test_sizes_are_read_from_the_language_model_inside_and_are_none_for_other_models() -> None:
    inside = LanguageModel()
    for model in (torch.nn.Sequential(inside), torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Sequential(inside))):
        inputs = find_inputs(model)
        assert inputs is not None
        assert inputs.sizes == EmbeddingSizes(hidden=4, deepstack_layers=3, positions=32)
    assert find_inputs(torch.nn.Linear(2, 2)) is None
