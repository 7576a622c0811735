// Plays the PCM16LE of replies and tells how much of each was really output.
//
// In:  {pcm, reply}   append to the queue
//      {flush}        drop what is queued of that reply, after a fade of 10 ms
// Out: {reply, ms, idle}   every 100 ms, when a reply gives way to the next, and when the queue runs empty

const REPORT_S = 0.1;
const FADE_S = 0.01;
const MOST_CHUNKS = 1000; // the server keeps 0.4 s ahead: a longer queue means that this page was suspended

class Playback extends AudioWorkletProcessor {
  constructor({ processorOptions: { rateHz } }) {
    super();
    this.rateHz = rateHz;
    this.queue = []; // {reply, samples, at}
    this.reply = null;
    this.played = 0; // samples of this.reply
    this.reported = 0;
    this.phase = 0; // between `previous` and `next`: linear interpolation to the context's own rate
    this.previous = 0;
    this.next = 0;
    this.port.onmessage = ({ data }) => ("flush" in data ? this.flush(data.flush) : this.append(data));
  }

  append({ pcm, reply }) {
    const samples = Float32Array.from(new Int16Array(pcm), (value) => value / 32768);
    if (samples.length > 0 && this.queue.length < MOST_CHUNKS) this.queue.push({ reply, samples, at: 0 });
  }

  flush(reply) {
    const size = Math.round(FADE_S * this.rateHz);
    const dropped = this.queue.filter((chunk) => chunk.reply === reply);
    const next = dropped.flatMap(({ samples, at }) => [...samples.subarray(at, at + size)]).slice(0, size);
    const samples = next.map((value, index) => value * (1 - (index + 1) / next.length));
    this.queue = this.queue.filter((chunk) => chunk.reply !== reply);
    if (samples.length > 0) this.queue.unshift({ reply, samples, at: 0 });
  }

  process(_inputs, [[channel]]) {
    for (let index = 0; index < channel.length; index++) {
      for (this.phase += this.rateHz / sampleRate; this.phase >= 1; this.phase--) {
        this.previous = this.next;
        this.next = this.pull();
      }
      channel[index] = this.previous + (this.next - this.previous) * this.phase;
    }
    if (this.played - this.reported >= REPORT_S * this.rateHz) this.report();
    return true;
  }

  pull() {
    if (this.queue.length === 0) return 0;
    const chunk = this.queue[0];
    if (chunk.reply !== this.reply) this.begin(chunk.reply);
    const sample = chunk.samples[chunk.at++];
    this.played++;
    if (chunk.at === chunk.samples.length) this.queue.shift();
    if (this.queue.length === 0) this.report();
    return sample;
  }

  begin(reply) {
    if (this.played > this.reported) this.report();
    Object.assign(this, { reply, played: 0, reported: 0 });
  }

  report() {
    const ms = Math.round((this.played * 1000) / this.rateHz);
    this.port.postMessage({ reply: this.reply, ms, idle: this.queue.length === 0 });
    this.reported = this.played;
  }
}

registerProcessor("playback", Playback);
