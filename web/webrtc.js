// A call over WebRTC: the microphone up and the agent's voice down as Opus over UDP, events over a data channel. The
// server paces, pauses and drops the voice itself. What is on its way by then is muted here, and sent again if the agent
// goes on.

import { AGENT, CALLER, openLegs } from "./legs.js";
import { Marks } from "./marks.js";
import { PlayoutDelay } from "./playout.js";
import { Signalling, Unsupported } from "./signalling.js";

const ICE_MS = 4000; // a way through that exists is found in less; after it UDP counts as blocked
const OPEN_MS = 10_000; // from there to the open data channel: a busy server's handshake
const DISCONNECTED_MS = 5000; // a network that changes often comes back sooner
const TICK_MS = 100;
const FADE = [0.5, 0.2]; // of full volume, before it is muted
const FADE_MS = 5;
const MORE_MS = 40; // than the buffers have: the fade with which the server ends, and what is still in the network

// The server does WebRTC and is not reached by it.
export class Blocked extends Unsupported {}

export class WebRtcLine {
  kind = "webrtc";
  #signalling = new Signalling();
  #delay = new PlayoutDelay();
  #loudspeaker = new Audio();
  #reported; // the timestamp of the last report
  #paused = false; // what is muted is not heard, and not reported
  #muting = []; // timers
  #mutedAt = -Infinity;

  // `on`: {message, frames, reached, lost}
  constructor(on) {
    this.on = on;
    this.marks = new Marks((id) => this.on.reached(id));
  }

  // Resolves once events can pass. `stream` may be null: then the caller types.
  async open(stream, resume) {
    const configuration = await this.#signalling.configuration();
    this.connection = new RTCPeerConnection({ ...configuration, bundlePolicy: "max-bundle" });
    this.channel = this.connection.createDataChannel("events");
    this.channel.onmessage = ({ data }) => this.on.message(JSON.parse(data));
    const { sender, receiver } = this.connection.addTransceiver("audio", { direction: "sendrecv" });
    Object.assign(this, { sender, receiver });
    this.connection.ontrack = ({ track }) => this.#play(new MediaStream([track]));
    this.context = new AudioContext();
    this.legs = await openLegs(this.context, (frames) => this.on.frames(frames));
    await this.useMicrophone(stream);
    await this.#negotiate(resume);
    await this.#opened();
    this.connection.onconnectionstatechange = () => this.#watch();
    this.channel.onclose = () => {
      this.#signalling.resource = null; // the server has ended it
      this.on.lost({});
    };
    this.ticking = setInterval(() => this.#tick(), TICK_MS);
  }

  async #negotiate(resume) {
    const { connection } = this;
    connection.onicecandidate = ({ candidate }) => {
      if (candidate?.candidate !== "") this.#signalling.candidate(candidate, connection.localDescription);
    };
    await connection.setLocalDescription();
    const sdp = await this.#signalling.answer(connection.localDescription.sdp, resume);
    this.#signalling.send(connection.localDescription);
    await connection.setRemoteDescription({ type: "answer", sdp });
  }

  #opened() {
    const { connection, channel } = this;
    return new Promise((resolve, reject) => {
      const fail = () => reject(new Blocked("no way through"));
      let limit = setTimeout(fail, ICE_MS);
      connection.oniceconnectionstatechange = () => {
        if (!["connected", "completed"].includes(connection.iceConnectionState)) return;
        clearTimeout(limit);
        limit = setTimeout(fail, OPEN_MS);
      };
      connection.onconnectionstatechange = () => connection.connectionState === "failed" && fail();
      channel.onopen = () => [clearTimeout(limit), resolve()];
    });
  }

  #watch() {
    const state = this.connection.connectionState;
    clearTimeout(this.patience);
    if (state === "failed") this.on.lost({ broken: true });
    if (state === "disconnected") this.patience = setTimeout(() => this.on.lost({ broken: true }), DISCONNECTED_MS);
  }

  // Chromium decodes a remote track only while an element plays it, and its echo canceller knows what that plays.
  #play(stream) {
    this.#loudspeaker.srcObject = stream;
    this.#loudspeaker.play().catch(() => {}); // the call ended before it began
    this.#listen(stream, AGENT);
  }

  // A browser that cannot join two sample rates leaves this leg without a meter.
  #listen(stream, leg) {
    try {
      const source = this.context.createMediaStreamSource(stream);
      source.connect(this.legs, 0, leg);
      return source;
    } catch {
      return null;
    }
  }

  async useMicrophone(stream) {
    this.microphone?.disconnect();
    this.microphone = stream && this.#listen(stream, CALLER);
    await this.sender.replaceTrack(stream?.getAudioTracks()[0] ?? null);
  }

  send(message) {
    if (this.channel.readyState === "open") this.channel.send(JSON.stringify(message));
  }

  mark(reply, id, aheadMs) {
    this.marks.add(reply, id, performance.now(), this.#delay.totalMs, aheadMs);
  }

  pause() {
    this.#paused = true;
    this.#mute();
    this.marks.hold(performance.now());
    this.#report({ muted: true, delay_ms: 0 }); // what has left for the output cannot be muted
  }

  resume() {
    this.#paused = false;
    if (performance.now() - this.#mutedAt < MORE_MS) this.#unmute(); // told together: nothing comes again
    this.marks.release(performance.now(), this.#delay.totalMs);
  }

  flush(reply) {
    if (!this.#paused) this.#mute();
    this.#paused = false;
    this.marks.drop(reply);
  }

  // What is on its way: behind it there is silence, or the next reply. A hard end would click.
  #mute() {
    this.#unmute();
    const fade = FADE.map((volume, step) => setTimeout(() => (this.#loudspeaker.volume = volume), FADE_MS * step));
    const muted = setTimeout(() => (this.#loudspeaker.muted = true), FADE_MS * FADE.length);
    const over = setTimeout(() => this.#unmute(), this.#delay.totalMs + MORE_MS);
    this.#muting = [...fade, muted, over];
    this.#mutedAt = performance.now();
  }

  #unmute() {
    this.#muting.forEach(clearTimeout);
    Object.assign(this.#loudspeaker, { muted: false, volume: 1 });
  }

  #tick() {
    const now = performance.now();
    this.marks.advance(now);
    this.#delay.refresh(this.receiver, now).catch(() => {}); // closed meanwhile
    if (!this.#paused && this.#timestamp() !== this.#reported) this.#report({});
  }

  #timestamp() {
    return this.receiver.getSynchronizationSources()[0]?.rtpTimestamp;
  }

  #report(more) {
    const timestamp = this.#timestamp();
    if (timestamp === undefined) return;
    this.#reported = timestamp;
    this.send({ type: "playout", timestamp, delay_ms: this.#delay.playoutMs, ...more });
  }

  // `goesOn`: the conversation is taken up on another line, which the server is to find.
  async close({ goesOn = false } = {}) {
    this.on = { message() {}, frames() {}, reached() {}, lost() {} };
    clearInterval(this.ticking);
    clearTimeout(this.patience);
    this.#muting.forEach(clearTimeout);
    this.#loudspeaker.srcObject = null;
    this.connection?.close();
    if (this.context && this.context.state !== "closed") this.context.close();
    if (!goesOn) await this.#signalling.hangUp();
  }
}
