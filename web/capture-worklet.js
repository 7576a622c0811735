// Microphone samples in, 20 ms frames of PCM16LE at `rateHz` out.

const FRAME_S = 0.02;

class Capture extends AudioWorkletProcessor {
  constructor({ processorOptions: { rateHz } }) {
    super();
    this.step = sampleRate / rateHz; // input samples per output sample, 1 or more
    this.missing = this.step; // input still needed for the next output sample
    this.sum = 0; // input already in it
    this.frame = new Float32Array(Math.round(rateHz * FRAME_S));
    this.filled = 0;
  }

  process([[channel]]) {
    for (const sample of channel ?? []) this.take(sample);
    return true;
  }

  // An output sample is the mean of the input it covers, with shares at both edges: enough of a low-pass for speech.
  take(sample) {
    const share = Math.min(1, this.missing);
    this.sum += sample * share;
    this.missing -= share;
    if (this.missing > 1e-9) return;
    this.frame[this.filled++] = this.sum / this.step;
    this.sum = sample * (1 - share);
    this.missing = this.step - (1 - share);
    if (this.filled === this.frame.length) this.send();
  }

  send() {
    const pcm = Int16Array.from(this.frame, (value) => Math.round(Math.max(-1, Math.min(1, value)) * 32767)).buffer;
    this.port.postMessage(pcm, [pcm]);
    this.filled = 0;
  }
}

registerProcessor("capture", Capture);
