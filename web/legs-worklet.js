// How loud the caller and the agent are, in frames of 10 ms on one clock: that of the audio thread, which no busy page
// delays, so that a delay from one leg to the other is measured to a frame.
//
// Out: {end, legs}   every 50 ms; `end` is the time in seconds at which the last frame ends, `legs` holds each leg's
//                    frames as [root mean square, peak]

const FRAME_S = 0.01;
const FRAMES_PER_MESSAGE = 5;

class Legs extends AudioWorkletProcessor {
  size = Math.round(FRAME_S * sampleRate);
  filled = 0;
  sums = [0, 0];
  peaks = [0, 0];
  frames = [[], []];

  process(inputs) {
    const channels = inputs.map(([channel]) => channel); // none while a leg is not connected
    const quantum = channels.find(Boolean)?.length ?? 128;
    for (let index = 0; index < quantum; index++) {
      channels.forEach((channel, leg) => this.take(leg, channel ? channel[index] : 0));
      if (++this.filled === this.size) this.close(currentTime + (index + 1) / sampleRate);
    }
    return true;
  }

  take(leg, sample) {
    this.sums[leg] += sample * sample;
    this.peaks[leg] = Math.max(this.peaks[leg], Math.abs(sample));
  }

  close(end) {
    this.frames.forEach((frames, leg) => frames.push([Math.sqrt(this.sums[leg] / this.size), this.peaks[leg]]));
    [this.filled, this.sums, this.peaks] = [0, [0, 0], [0, 0]];
    if (this.frames[0].length < FRAMES_PER_MESSAGE) return;
    this.port.postMessage({ end, legs: this.frames });
    this.frames = [[], []];
  }
}

registerProcessor("legs", Legs);
