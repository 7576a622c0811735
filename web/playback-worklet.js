// Plays the PCM16LE of replies and tells how much of each was really output.
//
// In:  {pcm, reply}   append to the queue
//      {pause}        fall silent after a fade of 20 ms; the queue is kept, with what has faded out
//      {resume}       go on from the sample at which the fade began, with a fade-in
//      {flush}        drop what is queued of that reply, after a fade
//      {mark, reply, aheadMs}   tell when what comes next of that reply is played, or so much after it
// Out: {reply, ms}    every 100 ms, at a pause, when a reply gives way to the next, and when the queue runs empty
//      {reached}      this mark

const REPORT_S = 0.1;
const FADE_S = 0.02;
const MOST_CHUNKS = 1000; // the server keeps 0.4 s ahead: a longer queue means that this page was suspended

class Playback extends AudioWorkletProcessor {
  constructor({ processorOptions: { rateHz } }) {
    super();
    this.rateHz = rateHz;
    this.fadeSize = Math.round(FADE_S * rateHz);
    this.queue = []; // {reply, samples, at}
    this.marks = []; // {id, reply, at}, in order; `at` counts samples of the reply
    this.fading = []; // copies of samples that fade out; these do not count as played
    this.rising = 0; // samples until a fade-in is over
    this.paused = null; // this reply
    this.reply = null;
    this.played = 0; // samples of this.reply
    this.reported = 0;
    this.phase = 0; // between `previous` and `next`: linear interpolation to the context's own rate
    this.previous = 0;
    this.next = 0;
    this.port.onmessage = ({ data }) => this.take(data);
  }

  take(data) {
    const order = ["pause", "resume", "flush"].find((name) => name in data);
    if (order) this[order](data[order]);
    else if ("mark" in data) this.mark(data);
    else this.append(data);
  }

  append({ pcm, reply }) {
    if (this.paused !== null && this.paused !== reply) this.flush(this.paused);
    const samples = Float32Array.from(new Int16Array(pcm), (value) => value / 32768);
    if (samples.length > 0 && this.queue.length < MOST_CHUNKS) this.queue.push({ reply, samples, at: 0 });
  }

  // A guess about what comes earlier ends where the next mark really stands.
  mark({ mark: id, reply, aheadMs }) {
    const queued = this.queue.filter((chunk) => chunk.reply === reply);
    const left = queued.reduce((total, { samples, at }) => total + samples.length - at, 0);
    const next = left + (reply === this.reply ? this.played : 0);
    if (aheadMs === 0) this.marks.forEach((mark) => mark.reply === reply && (mark.at = Math.min(mark.at, next)));
    this.marks.push({ id, reply, at: next + Math.round((aheadMs * this.rateHz) / 1000) });
  }

  pause(reply) {
    if (this.paused === null) this.fadeOut(this.queue);
    this.paused = reply;
    this.report(reply);
  }

  resume(reply) {
    if (this.paused !== reply) return;
    this.paused = null;
    this.rising = this.fadeSize;
  }

  flush(reply) {
    const dropped = this.queue.filter((chunk) => chunk.reply === reply);
    if (this.paused === null) this.fadeOut(dropped);
    this.queue = this.paused === reply ? [] : this.queue.filter((chunk) => chunk.reply !== reply);
    if (this.paused === reply) this.paused = null;
    this.marks = this.marks.filter((mark) => mark.reply !== reply);
    this.rising = 0;
    if (dropped.length > 0) this.report(reply);
  }

  // A fade-out that still sounds is left to end: what follows it has not been heard yet.
  fadeOut(chunks) {
    if (this.fading.length > 0) return;
    const next = chunks.flatMap(({ samples, at }) => [...samples.subarray(at, at + this.fadeSize)]);
    const size = Math.min(next.length, this.fadeSize);
    this.fading = next.slice(0, size).map((value, index) => value * this.gain() * (1 - (index + 1) / size));
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
    if (this.fading.length > 0) return this.fading.shift();
    if (this.paused !== null || this.queue.length === 0) return 0;
    const chunk = this.queue[0];
    if (chunk.reply !== this.reply) this.begin(chunk.reply);
    const sample = chunk.samples[chunk.at++] * this.gain();
    this.rising = Math.max(0, this.rising - 1);
    this.played++;
    if (this.marks.length > 0) this.reach();
    if (chunk.at === chunk.samples.length) this.queue.shift();
    if (this.queue.length === 0) this.report();
    return sample;
  }

  reach() {
    while (this.marks[0]?.reply === this.reply && this.marks[0].at < this.played) this.tell(this.marks.shift());
  }

  tell({ id }) {
    this.port.postMessage({ reached: id });
  }

  // Of the next sample.
  gain() {
    return Math.min(1, (this.fadeSize - this.rising + 1) / this.fadeSize);
  }

  begin(reply) {
    if (this.played > this.reported) this.report();
    const before = this.marks.findIndex((mark) => mark.reply === reply);
    if (before > 0) this.marks.splice(0, before).forEach((mark) => this.tell(mark)); // their guess was too late
    Object.assign(this, { reply, played: 0, reported: 0 });
  }

  report(reply = this.reply) {
    const samples = reply === this.reply ? this.played : 0; // one that was paused or dropped before it began
    const ms = Math.round((samples * 1000) / this.rateHz);
    this.port.postMessage({ reply, ms });
    this.reported = this.played;
  }
}

registerProcessor("playback", Playback);
