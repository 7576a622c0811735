"""Recognition: an utterance in, its transcript out. Moonshine on a SimpleScheduler, batched behind the gate."""

from collections.abc import Iterator, Sequence
from typing import Annotated

import numpy as np
from msgspec import Meta

from voice_runtime import assets
from voice_runtime.audio.pcm import Samples, to_samples
from voice_runtime.errors import RequestError
from voice_runtime.models.moonshine import Moonshine
from voice_runtime.schedulers.gate import BatchGate
from voice_runtime.schedulers.messages import NewRequest
from voice_runtime.schedulers.simple import OneShot, SimpleScheduler
from voice_runtime.stages.base import BuildCount, Stage, StageSettings
from voice_runtime.stages.payloads import Transcript, Utterance

RATE_HZ = 16_000
SHORTEST_SAMPLES = RATE_HZ // 10  # that Moonshine takes


class AsrSettings(StageSettings, frozen=True, tag="asr.moonshine", kw_only=True):
    """batch: most utterances recognised at once. max_hold_ms: longest wait for company that is on its way."""

    batch: Annotated[int, Meta(ge=1)] = 2
    max_hold_ms: Annotated[float, Meta(ge=0, le=1_000)] = 6.0


def prepare(utterance: Utterance) -> Samples:
    """PCM -> float32, shape (T,), 16 kHz, without offset and with a peak near full scale.

    Moonshine was trained on levelled speech: a quiet microphone costs words.
    """
    samples = to_samples(utterance.pcm)
    if not samples.size:
        return samples
    samples = np.pad(samples, (0, max(0, SHORTEST_SAMPLES - samples.size)))
    samples -= samples.mean()
    peak = float(np.abs(samples).max())
    if 0.003 < peak < 0.7:
        samples *= np.float32(0.7 / peak)
    return samples


def build(settings: AsrSettings) -> Stage:
    model = Moonshine(
        assets.locate("moonshine-encoder"), assets.locate("moonshine-decoder"), assets.locate("moonshine-tokenizer")
    )
    building = BuildCount()

    def transcribe_one(clip: Samples) -> Transcript:
        reading = model.transcribe([clip])[0]
        return Transcript(reading.text, reading.confidence, reading.weakest)

    def transcribe(clips: Sequence[Samples]) -> Iterator[Transcript | Exception]:
        # One after the other within the batch, each out as soon as it is done: see Moonshine for why.
        for clip in clips:
            try:
                yield transcribe_one(clip)
            except RequestError as error:
                yield error

    work: OneShot[Samples, Transcript] = OneShot(
        compute_fn=transcribe_one,
        batch_compute_fn=transcribe,
        gate=BatchGate(settings.batch, settings.max_hold_ms / 1000),
        building=building,
    )
    second_of_silence = NewRequest("warm-up", Utterance(bytes(2 * RATE_HZ)))
    return Stage(SimpleScheduler(work), warm_up=[second_of_silence], prepare=prepare, building=building)
