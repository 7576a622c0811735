// How long the agent's voice takes from its packet to the loudspeaker, from the browser's statistics of a receiver.

const FIRST_GUESS_MS = 80; // a browser's usual jitter buffer at the start of a call
const EVERY_MS = 500; // statistics cost more than a timestamp

export class PlayoutDelay {
  playoutMs = 0; // from the jitter buffer to the loudspeaker; 0 when it is not told
  #bufferMs = FIRST_GUESS_MS;
  #buffer = [0, 0]; // sums so far: seconds times samples, samples
  #playout = [0, 0];
  #askedMs = -Infinity;

  get totalMs() {
    return this.#bufferMs + this.playoutMs;
  }

  async refresh(receiver, nowMs) {
    if (nowMs - this.#askedMs < EVERY_MS) return;
    this.#askedMs = nowMs;
    for (const entry of (await receiver.getStats()).values()) this.#take(entry);
  }

  #take(entry) {
    if (entry.type === "inbound-rtp") {
      const sums = [entry.jitterBufferDelay, entry.jitterBufferEmittedCount];
      this.#bufferMs = average(this.#buffer, sums) ?? this.#bufferMs;
      this.#buffer = sums;
    } else if (entry.type === "media-playout") {
      const sums = [entry.totalPlayoutDelay, entry.totalSamplesCount];
      this.playoutMs = average(this.#playout, sums) ?? this.playoutMs;
      this.#playout = sums;
    }
  }
}

// Over what came since; null when nothing did.
function average([delayBefore, countBefore], [delay, count]) {
  return count > countBefore ? ((delay - delayBefore) * 1000) / (count - countBefore) : null;
}
