"""Both legs of a call as a browser's page has them, on one clock: what its microphone gave and what it played.

What comes while the page has muted its loudspeaker is silence.
"""

import base64
from dataclasses import dataclass

import numpy as np
from playwright.async_api import Page

from voice_runtime.audio.pcm import Samples, to_samples

RATE_HZ = 16_000
QUIET_S = 0.4  # no pause between words is as long
PAUSE_S = 0.2
FRAME_S = 0.02
LOUD = 0.01  # of full scale, root mean square of a frame

# A ScriptProcessor needs no module of its own, which the page's content policy would refuse.
RECORDER = """
(() => {
  const legs = { caller: [], agent: [] };
  const loudspeakers = [];
  let context = null;
  for (const name of ["muted", "volume"]) {
    const native = Object.getOwnPropertyDescriptor(HTMLMediaElement.prototype, name);
    Object.defineProperty(HTMLMediaElement.prototype, name, {
      ...native,
      set(value) {
        native.set.call(this, value);
        loudspeakers.forEach(({ gain }) => (gain.value = this.muted ? 0 : this.volume));
      },
    });
  }
  const tap = (name, stream) => {
    context ??= new AudioContext({ sampleRate: RATE_HZ });
    const source = context.createMediaStreamSource(stream);
    const recorder = context.createScriptProcessor(1024, 1, 1);
    const gain = context.createGain();
    if (name === "agent") loudspeakers.push(gain);
    recorder.onaudioprocess = ({ playbackTime, inputBuffer }) =>
      legs[name].push([playbackTime, Int16Array.from(inputBuffer.getChannelData(0), (value) => value * 32767)]);
    source.connect(gain).connect(recorder);
    recorder.connect(context.destination);
  };
  const Native = RTCPeerConnection;
  window.RTCPeerConnection = class extends Native {
    constructor(...given) {
      super(...given);
      this.addEventListener("track", ({ track }) => tap("agent", new MediaStream([track])));
    }
  };
  const devices = navigator.mediaDevices;
  const ask = devices.getUserMedia.bind(devices);
  devices.getUserMedia = async (wanted) => {
    const stream = await ask(wanted);
    tap("caller", stream);
    return stream;
  };
  window.takeLeg = (name) =>
    legs[name].splice(0).map(([at, samples]) => {
      const bytes = new Uint8Array(samples.buffer);
      return [at, btoa(String.fromCharCode(...bytes))];
    });
})();
""".replace("RATE_HZ", str(RATE_HZ))


async def record(page: Page) -> None:
    """Record every call of the pages that are opened from now on."""
    await page.add_init_script(RECORDER)


@dataclass(frozen=True, slots=True)
class Leg:
    """start_s: on the clock of both legs. samples: float32 at RATE_HZ."""

    start_s: float
    samples: Samples

    def loud(self) -> list[float]:
        """When it was: the beginnings of frames of FRAME_S."""
        size = int(FRAME_S * RATE_HZ)
        count = self.samples.size // size
        power = np.sqrt((self.samples[: count * size].reshape(count, size) ** 2).mean(1))
        return [self.start_s + FRAME_S * int(index) for index in np.flatnonzero(power > LOUD)]

    def between(self, from_s: float, to_s: float) -> Samples:
        first, end = (max(0, round((at_s - self.start_s) * RATE_HZ)) for at_s in (from_s, to_s))
        return self.samples[first:end]


async def take(page: Page, name: str) -> Leg:
    """What was recorded of a leg, "caller" or "agent", since it was taken last."""
    pieces = await page.evaluate("(name) => takeLeg(name)", name)
    start_s = pieces[0][0] if pieces else 0.0
    end_s = pieces[-1][0] + 1024 / RATE_HZ if pieces else 0.0
    samples = np.zeros(round((end_s - start_s) * RATE_HZ), np.float32)
    for at_s, encoded in pieces:
        piece = to_samples(base64.b64decode(encoded))
        first = round((at_s - start_s) * RATE_HZ)
        samples[first : first + piece.size] = piece[: samples.size - first]
    return Leg(start_s, samples)


def onsets(leg: Leg) -> list[float]:
    """When somebody begins to speak after a silence."""
    found: list[float] = []
    last_s = float("-inf")
    for at_s in leg.loud():
        if at_s - last_s > QUIET_S:
            found.append(at_s)
        last_s = at_s
    return found


def silence_after_s(agent: Leg, onset_s: float, quiet_s: float = PAUSE_S) -> float | None:
    """How long after it the agent falls silent for so long; None when it was silent then."""
    loud = agent.loud()
    if not any(onset_s - QUIET_S / 2 < at_s <= onset_s for at_s in loud):
        return None
    last_s = onset_s
    for at_s in (at_s for at_s in loud if at_s > onset_s):
        if at_s - last_s > quiet_s:
            break
        last_s = at_s
    return last_s + FRAME_S - onset_s
