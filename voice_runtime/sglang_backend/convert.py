"""Our requests in SGLang's terms. Source: sglang 0.5.15.post1, srt/managers/io_struct.py."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from sglang.srt.managers.io_struct import AbortReq, TokenizedGenerateReqInput
from sglang.srt.sampling.sampling_params import SamplingParams

if TYPE_CHECKING:
    from voice_runtime.sglang_backend.engine import Generate


def to_upstream(request_id: str, generate: Generate) -> TokenizedGenerateReqInput:
    """A request that streams token by token, without text, log-probabilities or a session of upstream's own."""
    sampling = SamplingParams(
        max_new_tokens=generate.max_new_tokens,
        stop_token_ids=list(generate.stop_ids),
        temperature=generate.temperature,
        top_p=generate.top_p,
        repetition_penalty=generate.repetition_penalty,
    )
    sampling.normalize(None)
    return TokenizedGenerateReqInput(
        rid=request_id,
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
    )


def abort_of(request_id: str) -> AbortReq:
    """Upstream matches by prefix: request ids of equal length keep one id from naming another."""
    return AbortReq(rid=request_id)
