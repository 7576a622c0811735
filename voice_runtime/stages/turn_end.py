"""End of turn: the caller's last seconds in, the probability that the turn is over out. Smart Turn."""

from voice_runtime import assets
from voice_runtime.audio.pcm import to_samples
from voice_runtime.models.smart_turn import SmartTurn
from voice_runtime.schedulers.messages import NewRequest
from voice_runtime.schedulers.simple import OneShot, SimpleScheduler
from voice_runtime.stages.base import Stage, StageSettings
from voice_runtime.stages.payloads import Heard, TurnEnd


class TurnEndSettings(StageSettings, frozen=True, tag="turn_end.smart_turn", kw_only=True):
    """Nothing of its own to choose."""


def build(settings: TurnEndSettings) -> Stage:
    model = SmartTurn(assets.locate("smart-turn"))
    work: OneShot[Heard, TurnEnd] = OneShot(lambda heard: TurnEnd(model.probability(to_samples(heard.pcm))))
    return Stage(SimpleScheduler(work), warm_up=[NewRequest("warm-up", Heard(bytes(32_000)))])
