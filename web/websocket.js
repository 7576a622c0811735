// A call over one WebSocket: PCM both ways, with two worklets for the sound. It needs nothing but TCP; the page plays,
// pauses and drops the agent's voice itself, and tells how much of it was played.

import { AGENT, CALLER, openLegs } from "./legs.js";

const INPUT_RATES_HZ = [8000, 16000, 24000, 48000];
const OUTPUT_RATE_HZ = 24000;

export class WebSocketLine {
  kind = "websocket";

  // `on`: {message, frames, reached, lost}
  constructor(on) {
    this.on = on;
    this.reply = null; // binary messages belong to it
    this.ready = false;
  }

  // Resolves when the connection is under way: what becomes of it is told by a message or by `lost`.
  async open(stream, resume) {
    const [context, microphone] = joinAudio(stream);
    this.context = context;
    this.legs = await openLegs(context, (frames) => this.on.frames(frames));
    await context.audioWorklet.addModule("playback-worklet.js");
    this.playback = worklet(context, "playback", OUTPUT_RATE_HZ, { numberOfInputs: 0, outputChannelCount: [1] });
    this.playback.port.onmessage = ({ data }) => this.#played(data);
    this.playback.connect(context.destination);
    this.playback.connect(this.legs, 0, AGENT);
    await this.#openCapture();
    this.#join(microphone);
    this.#connect(resume);
  }

  async #openCapture() {
    const rate = this.context.sampleRate;
    this.inputRate = INPUT_RATES_HZ.includes(rate) ? rate : 16000;
    await this.context.audioWorklet.addModule("capture-worklet.js");
    this.capture = worklet(this.context, "capture", this.inputRate, { numberOfOutputs: 0 });
    this.capture.port.onmessage = ({ data }) => this.ready && this.socket.send(data);
  }

  #join(microphone) {
    this.microphone = microphone;
    microphone?.connect(this.capture);
    microphone?.connect(this.legs, 0, CALLER);
  }

  #connect(resume) {
    const url = new URL(`/v1/pcm${location.search}`, location.href.replace(/^http/, "ws")); // with the page's ?token=
    url.searchParams.set("input_rate", this.inputRate);
    url.searchParams.set("output_rate", OUTPUT_RATE_HZ);
    if (resume) url.searchParams.set("resume", resume);
    this.socket = new WebSocket(url);
    this.socket.binaryType = "arraybuffer";
    this.socket.onmessage = ({ data }) => (typeof data === "string" ? this.#receive(JSON.parse(data)) : this.#play(data));
    this.socket.onclose = ({ reason }) => {
      this.ready = false;
      this.on.lost({ reason });
    };
  }

  #receive(message) {
    if (message.type === "ready") this.ready = true;
    if (message.type === "reply_started") this.reply = message.reply;
    this.on.message(message);
  }

  #play(pcm) {
    this.playback.port.postMessage({ pcm, reply: this.reply }, [pcm]);
  }

  #played(told) {
    if ("reached" in told) this.on.reached(told.reached);
    else this.send({ type: "played", ...told });
  }

  async useMicrophone(stream) {
    this.microphone?.disconnect();
    this.#join(stream && this.context.createMediaStreamSource(stream));
  }

  send(message) {
    if (this.ready) this.socket.send(JSON.stringify(message));
  }

  mark(reply, id, aheadMs) {
    this.playback.port.postMessage({ mark: id, reply, aheadMs });
  }

  pause(reply) {
    if (reply === this.reply) this.playback.port.postMessage({ pause: reply });
  }

  resume(reply) {
    if (reply === this.reply) this.playback.port.postMessage({ resume: reply });
  }

  flush(reply) {
    this.playback.port.postMessage({ flush: reply });
  }

  async close() {
    this.on = { message() {}, frames() {}, reached() {}, lost() {} };
    this.ready = false;
    this.socket?.close();
    if (this.context && this.context.state !== "closed") this.context.close();
  }
}

// Some browsers refuse a microphone in a context of another rate: then the worklets convert.
function joinAudio(stream) {
  const context = new AudioContext({ sampleRate: OUTPUT_RATE_HZ });
  if (!stream) return [context, null];
  try {
    return [context, context.createMediaStreamSource(stream)];
  } catch {
    context.close();
    const native = new AudioContext();
    return [native, native.createMediaStreamSource(stream)];
  }
}

function worklet(context, name, rateHz, options) {
  return new AudioWorkletNode(context, name, { ...options, processorOptions: { rateHz } });
}
