// One call, from pressing the button to its end: which line carries it, who has the floor, and what of it is shown.

import { EarToEar } from "./latency.js";
import { Unsupported } from "./signalling.js";
import { CONNECTED, DROPPED, FALLEN_BACK, FAULTS, FORGOTTEN, INSECURE, LOST, STATES, UNPLUGGED, UNREACHABLE, health } from "./texts.js";
import { Blocked, WebRtcLine } from "./webrtc.js";
import { WebSocketLine } from "./websocket.js";

let isBlocked = false; // no way through for WebRTC: the next call of this page need not wait to find out

export class Call {
  over = false;
  ready = false;
  hearing = false; // the caller speaks
  audible = false; // the agent speaks
  expecting = false; // a reply is being made
  fault = null; // what the server complained of, when that was its last word
  remark = null; // what the caller should know, until the next turn
  goodbye = null; // why the server is about to close
  reply = null; // the one that is under way
  early = []; // messages for the server before it is ready

  // `resume`: the token of a conversation to go on with. `page`: captions, scope, latency and microphone of the page.
  // `tell`: state(name, notice), line(kind), ready({recorded}), and end(error, goodbye, resume), which comes once; each
  // of its three may be null.
  constructor(resume, page, tell) {
    Object.assign(this, { resume, page, tell });
  }

  async start(withMicrophone) {
    this.tell.state("connecting");
    try {
      if (withMicrophone) await this.takeMicrophone();
      if (!globalThis.AudioWorkletNode) throw new Error(INSECURE);
      await this.connect();
    } catch (error) {
      await this.fail(error);
    }
    if (this.over) this.end(); // stopped while the browser was asking: let go of what it gave
  }

  async takeMicrophone() {
    const stream = await this.page.microphone.open();
    this.stream?.getTracks().forEach((track) => track.stop());
    this.stream = stream;
    stream.getAudioTracks()[0].onended = () => this.notice(UNPLUGGED);
  }

  // Another microphone, or the same with another setting, in the middle of a call.
  async changeMicrophone() {
    try {
      await this.takeMicrophone();
      if (this.over) this.end();
      else await this.line?.useMicrophone(this.stream);
    } catch (error) {
      this.notice(FAULTS[error.name] ?? error.message);
    }
  }

  async connect() {
    try {
      await this.findLine();
    } catch (error) {
      if (error.name !== "bad_resume" || this.over) throw error;
      await this.connectAnew();
    }
  }

  connectAnew() {
    Object.assign(this, { resume: null, fault: null, remark: FORGOTTEN });
    return this.findLine();
  }

  async findLine() {
    this.tell.line("opening");
    if (globalThis.RTCPeerConnection && !isBlocked) {
      try {
        return await this.open(new WebRtcLine(this.heard));
      } catch (error) {
        if (!(error instanceof Unsupported) || this.over) throw error;
        isBlocked = error instanceof Blocked;
        if (isBlocked) this.remark = FALLEN_BACK;
      }
    }
    await this.open(new WebSocketLine(this.heard));
  }

  async open(line) {
    this.line = line;
    this.ear = new EarToEar();
    try {
      await line.open(this.stream, this.resume);
      this.tell.line(line.kind);
    } catch (error) {
      await line.close();
      throw error;
    }
  }

  // What a line tells.
  heard = {
    message: (message) => {
      this.fault = null;
      this.on[message.type]?.(message);
      this.show();
    },
    frames: (frames) => this.listen(frames),
    reached: (word) => this.page.captions.light(word),
    lost: (how) => this.lost(how),
  };

  on = {
    ready: ({ resume = null, recorded = false }) => {
      Object.assign(this, { ready: true, resume });
      this.tell.ready({ recorded });
      if (this.stream && this.early.length === 0) this.remark ??= CONNECTED;
      this.early.splice(0).forEach((message) => this.send(message));
    },
    speech_started: () => Object.assign(this, { hearing: true, remark: null }),
    speech_stopped: () => {
      this.hearing = false; // a cough ends here: only words are thought about
      this.ear.stopped();
    },
    transcript: ({ text, final }) => {
      this.page.captions.caller(text, final);
      if (!final) return;
      this.ear.asked();
      this.expecting = true;
    },
    reply_started: ({ reply }) => {
      Object.assign(this, { reply, expecting: true });
      this.ear.expect(reply);
    },
    reply_text: ({ reply, text }) => {
      this.page.captions.words(reply, text).forEach(([word, aheadMs]) => this.line.mark(reply, word, aheadMs));
    },
    pause: ({ reply }) => this.line.pause(reply),
    resume: ({ reply }) => this.line.resume(reply),
    flush: ({ reply }) => {
      this.line.flush(reply);
      if (this.audible && reply === this.reply) this.page.scope.cut();
      this.audible = false;
    },
    reply_done: ({ reply, status, heard }) => {
      if (reply === this.reply) Object.assign(this, { expecting: false, audible: false });
      this.page.captions.done(reply, status, heard);
    },
    timing: ({ reply, ms }) => this.page.latency.served(reply, ms),
    closing: ({ reason }) => (this.goodbye = `The server ends this call: ${reason.replaceAll("_", " ")}.`),
    error: ({ code, message }) => {
      this.isForgotten = code === "bad_resume";
      this.fault = FAULTS[code] ?? message;
      Object.assign(this, { remark: this.fault, expecting: false });
    },
  };

  listen(frames) {
    this.page.scope.push(frames.legs);
    const first = this.ear.push(frames);
    if (!first) return;
    this.audible = this.expecting;
    if (first.ms !== null) this.page.latency.heard(first.reply, first.ms);
    this.show();
  }

  send(message) {
    if (this.ready) this.line.send(message);
    else this.early.push(message);
  }

  ask(text) {
    this.page.captions.caller(text, true);
    this.send({ type: "text", text });
    Object.assign(this, { remark: null, expecting: true });
    this.show();
  }

  notice(text) {
    this.remark = text;
    this.show();
  }

  show() {
    if (this.over || !this.ready) return;
    const quiet = this.expecting ? "thinking" : "listening";
    const state = this.hearing ? "hearing" : this.audible ? "speaking" : quiet;
    this.tell.state(state, this.goodbye ?? this.remark);
  }

  // `reason`: the server's, for closing. `broken`: the way is gone, and perhaps there is another.
  async lost({ reason = "", broken = false }) {
    const told = this.fault || (FAULTS[reason] ?? reason);
    if (this.over) return;
    if (this.isForgotten && this.resume) await this.connectAnew().catch((error) => this.fail(error));
    else if (this.goodbye) this.end();
    else if (told && !broken) this.end(told);
    else if (this.ready && broken && this.resume) await this.reconnect();
    else if (this.ready) this.end(this.resume ? DROPPED : LOST, this.resume);
    else await this.fail(new TypeError("closed before it was ready"));
  }

  // Once: what is lost again before it is ready is left to the caller.
  async reconnect() {
    Object.assign(this, { ready: false, hearing: false, audible: false, expecting: false });
    this.tell.state("reconnecting");
    this.page.captions.close();
    this.line.close({ goesOn: true });
    try {
      await this.connect();
    } catch (error) {
      await this.fail(error, DROPPED);
    }
    if (this.over) this.end();
  }

  async fail(error, whenGone = UNREACHABLE) {
    const isNetwork = error instanceof TypeError; // that is how fetch fails
    const why = isNetwork ? await health() : (FAULTS[error.name] ?? error.message);
    if (why === UNREACHABLE && this.resume) this.end(whenGone, this.resume);
    else this.end(why);
  }

  end(error = null, resume = null) {
    const first = !this.over;
    this.over = true;
    this.stream?.getTracks().forEach((track) => track.stop());
    this.line?.close();
    if (first) this.page.captions.close();
    if (first) this.tell.end(error, this.goodbye, resume);
  }
}
