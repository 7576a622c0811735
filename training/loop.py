"""What both training loops share: rate, optimiser, checkpoints that a kill cannot tear."""

import math
from pathlib import Path
from typing import Any

import torch
from torch import nn

LAST_SHARE = 0.02
WARM_UP_STEPS = 100
SAVE_S = 120.0
REPORT_STEPS = 20
SEED = 4


def rate(step: int, steps: int, peak: float) -> float:
    """Linear warm-up, then a cosine from the peak to a fiftieth of it."""
    if step < WARM_UP_STEPS:
        return peak * (step + 1) / WARM_UP_STEPS
    done = min(1.0, (step - WARM_UP_STEPS) / max(1, steps - WARM_UP_STEPS))
    return peak * (LAST_SHARE + (1 - LAST_SHARE) * (1 + math.cos(math.pi * done)) / 2)


def set_rate(optimiser: torch.optim.Optimizer, value: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = value


def optimiser_of(module: nn.Module) -> torch.optim.AdamW:
    """AdamW; weight decay for matrices only."""
    matrices = [p for p in module.parameters() if p.ndim > 1]
    others = [p for p in module.parameters() if p.ndim <= 1]
    groups: list[dict[str, Any]] = [{"params": matrices, "weight_decay": 0.05}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, betas=(0.9, 0.95), fused=True)


def resume(path: Path, module: nn.Module, optimiser: torch.optim.Optimizer) -> int:
    """Return the step to go on from: 0 when there is no checkpoint."""
    if not path.exists():
        return 0
    stored = torch.load(path, weights_only=True)
    module.load_state_dict(stored["module"])
    optimiser.load_state_dict(stored["optimiser"])
    return int(stored["step"])


def save(path: Path, module: nn.Module, optimiser: torch.optim.Optimizer, step: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    torch.save({"module": module.state_dict(), "optimiser": optimiser.state_dict(), "step": step}, unfinished)
    unfinished.rename(path)
