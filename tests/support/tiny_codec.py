"""A tiny codec language model with random weights, as a folder that the engine serves, and the plain loop over it."""

from pathlib import Path

import torch
from safetensors.torch import save_file

from voice_runtime.runner.codec_lm import NO_CODE, CodecLM, CodecLMConfig, KvCache
from voice_runtime.runner.feedback import CodecPrompt
from voice_runtime.runner.generate import Generate
from voice_runtime.sglang_backend.codec_folder import codec_folder

SIZES = CodecLMConfig(width=32, heads=2, layers=2, hidden=48, books=3, codes=50)
MODELS = "voice_runtime.sglang_backend"


def tiny_codec(folder: Path) -> CodecLM:
    """Write the folder `model` and return the network."""
    torch.manual_seed(5)
    network = CodecLM(SIZES).eval().requires_grad_(False)
    for weights in network.parameters():
        weights.copy_(torch.randn_like(weights) * 0.3)
    file = folder / "weights.safetensors"
    save_file({f"lm.{name}": tensor for name, tensor in network.state_dict().items()}, file)
    codec_folder(folder / "model", file, SIZES)
    return network


def speech(seed: int, history: int, frames: int, **sampling: float | int) -> Generate:
    """A request for `frames` frames after `history` ones, with random conditioning."""
    random = torch.Generator().manual_seed(seed)
    prompt = CodecPrompt(
        torch.randn(history + frames, SIZES.width, generator=random),
        torch.randint(SIZES.codes, (history, SIZES.books), generator=random),
    )
    return Generate([0] * (history + 1), frames, conditioning=prompt, **sampling)  # type: ignore[arg-type]


@torch.no_grad()
def plain_loop(network: CodecLM, generate: Generate) -> list[tuple[int, ...]]:
    """Greedy, one request, one frame a step: what every batch must equal."""
    prompt: CodecPrompt = generate.conditioning
    caches = [KvCache() for _ in network.layers]
    positions = len(generate.ids)
    frames = prompt.frames[:positions]
    previous = torch.cat([torch.full((1, SIZES.books), NO_CODE), prompt.history])
    made: list[tuple[int, ...]] = []
    at = torch.arange(positions)
    while True:
        state = network.states(network.inputs(frames, previous), at, caches)[-1:]
        first = network.book_logits(state, torch.empty(1, 0, dtype=torch.int64)).argmax(-1)
        frame = network.complete(state, first)
        made.append(tuple(frame[0].tolist()))
        if len(made) == generate.max_new_tokens:
            return made
        at = at[-1:] + 1
        frames, previous = prompt.frames[at], frame
