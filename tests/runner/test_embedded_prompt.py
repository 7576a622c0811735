"""What ThinkerModelRunner takes as the conditioning of a request, and how a span is cut."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from voice_runtime.errors import ConfigError, RequestError
from voice_runtime.runner.batch import EmbeddingSizes
from voice_runtime.runner.embeddings import EmbeddedPrompt, EmbeddedSpan, ThinkerModelRunner
from voice_runtime.runner.generate import Generate

IDS = list(range(10))
SPAN = EmbeddedSpan(2, torch.zeros(3, 8), torch.zeros(2, 3, 8))
PROMPT = EmbeddedPrompt([SPAN, EmbeddedSpan(5, torch.zeros(1, 8))], torch.arange(10).expand(3, -1), 0)


@pytest.fixture
def runner() -> ThinkerModelRunner:
    runner = ThinkerModelRunner()
    runner.attach_sizes(EmbeddingSizes(hidden=8, deepstack_layers=2, positions=20))
    return runner


def generate(conditioning: Any, tokens: int = 4) -> Generate:
    return Generate(IDS, tokens, conditioning=conditioning)


def test_a_prompt_of_text_and_one_with_spans_side_by_side_are_taken(runner: ThinkerModelRunner) -> None:
    runner.check(generate(None))
    runner.check(generate(PROMPT))
    runner.check(generate(replace(PROMPT, spans=[])))


@pytest.mark.parametrize(
    ("conditioning", "error"),
    [
        ("embeddings", "conditioning is a str, expected an EmbeddedPrompt or None"),
        (
            replace(PROMPT, spans=[EmbeddedSpan(2, torch.zeros(3, 7))]),
            r"embeds of span 0 have shape \(3, 7\), expected \(1 or more, 8\)",
        ),
        (
            replace(PROMPT, spans=[EmbeddedSpan(2, torch.zeros(0, 8))]),
            r"embeds of span 0 have shape \(0, 8\), expected \(1 or more, 8\)",
        ),
        (
            replace(PROMPT, spans=[replace(SPAN, deepstack=torch.zeros(1, 3, 8))]),
            r"deepstack of span 0 has shape \(1, 3, 8\), expected \(2, 3, 8\)",
        ),
        (
            replace(PROMPT, spans=[SPAN, EmbeddedSpan(4, torch.zeros(1, 8))]),
            "span 1 is at positions 4 to 5, expected 5 to 10",
        ),
        (
            replace(PROMPT, spans=[EmbeddedSpan(8, torch.zeros(3, 8))]),
            "span 0 is at positions 8 to 11, expected 0 to 10",
        ),
        (
            replace(PROMPT, spans=[EmbeddedSpan(-1, torch.zeros(3, 8))]),
            "span 0 is at positions -1 to 2, expected 0 to 10",
        ),
        (
            replace(PROMPT, positions=torch.arange(9).expand(3, -1)),
            r"positions are torch.int64 of shape \(3, 9\), expected torch.int64, \(3, 10\)",
        ),
        (
            replace(PROMPT, positions=torch.zeros(3, 10)),
            r"positions are torch.float32 of shape \(3, 10\), expected torch.int64, \(3, 10\)",
        ),
        (replace(PROMPT, offset=7), "rotary positions are 0 to 20, expected 0 to 19"),
        (replace(PROMPT, offset=-11), "rotary positions are -1 to 9, expected 0 to 19"),
    ],
)
def test_what_does_not_fit_is_refused_with_found_and_expected(
    runner: ThinkerModelRunner, conditioning: Any, error: str
) -> None:
    with pytest.raises(RequestError, match=error):
        runner.check(generate(conditioning))


def test_a_model_that_takes_token_ids_alone_is_refused() -> None:
    with pytest.raises(ConfigError, match="takes token ids alone"):
        ThinkerModelRunner().attach_sizes(None)


@pytest.mark.parametrize("cut", range(8))
def test_the_parts_of_a_span_on_both_sides_of_a_border_make_the_whole(cut: int) -> None:
    deepstack = torch.arange(6.0).reshape(2, 3, 1)
    span = EmbeddedSpan(2, torch.arange(3.0)[:, None], deepstack)
    parts = [(start, span.within(start, end)) for start, end in ((0, cut), (cut, 8))]
    found = [(start, part) for start, part in parts if part is not None]
    assert torch.equal(torch.cat([part.embeds for _, part in found]), span.embeds)
    assert torch.equal(torch.cat([part.deepstack for _, part in found if part.deepstack is not None], 1), deepstack)
    assert next(start + part.start for start, part in found) == span.start
    assert [start + part.end for start, part in found][-1] == span.end
