"""Our requests in SGLang's terms. Source: sglang 0.5.15.post1, srt/managers/io_struct.py."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from sglang.srt.managers.io_struct import AbortReq, TokenizedGenerateReqInput
from sglang.srt.sampling.sampling_params import SamplingParams

if TYPE_CHECKING:
    from voice_runtime.runner.generate import Generate


def to_upstream(key: str, generate: Generate) -> TokenizedGenerateReqInput:
    """A request that streams token by token, without text, log-probabilities or a session of upstream's own.

    The repetition penalty stays with the runner: upstream's leaves out the prompt.
    """
    sampling = SamplingParams(
        max_new_tokens=generate.max_new_tokens,
        stop_token_ids=list(generate.stop_ids),
        temperature=generate.temperature,
        top_p=generate.top_p,
        top_k=generate.top_k or -1,
    )
    sampling.normalize(None)
    return TokenizedGenerateReqInput(
        rid=key,
        input_text=None,
        input_ids=array("q", generate.ids),
        input_embeds=None,
        mm_inputs=None,
        token_type_ids=None,
        sampling_params=sampling,
        return_logprob=False,
        logprob_start_len=-1,
        top_logprobs_num=0,
        token_ids_logprob=None,
        stream=True,
        # What is conditioned on more than its ids shares no page with a request of equal ids.
        extra_key=key if generate.conditioning is not None else None,
    )


def abort_of(key: str) -> AbortReq:
    """Upstream matches by prefix: keys of equal length keep one from naming another."""
    return AbortReq(rid=key)
