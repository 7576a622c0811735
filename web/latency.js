// The delay that matters, from the end of the caller's voice to the agent's first sound, both heard in this page; and
// beside it where the server says its part of that time went.

import { AGENT, CALLER, SOUND } from "./legs.js";

const FRAME_S = 0.01; // of legs-worklet.js
const VOICE = 0.006; // at least so loud, and so many times as loud as the room
const VOICE_OVER_ROOM = 3;
const ROOM_RISE = 1.002; // a frame: the estimate of the room follows a louder one in seconds, a quieter one at once
const VOICE_FRAMES = 4; // a click is shorter

export class EarToEar {
  #room = 1;
  #run = 0;
  #voiceEnd = null; // in seconds of the audio clock
  #turnEnd = null; // the voice's end when the server heard the turn's
  #from = null; // what the next reply answers
  #expected = null;
  #wasSilent = false; // since the reply was announced: what sounds before is the tail of another

  stopped() {
    this.#turnEnd = this.#voiceEnd;
  }

  // What was said had words in it.
  asked() {
    this.#from = this.#turnEnd ?? this.#voiceEnd;
    this.#turnEnd = null;
  }

  expect(reply) {
    this.#expected = reply;
    this.#wasSilent = false;
  }

  // {reply, ms} at the first sound of an expected reply, else null. `ms` is null when no voice came before it.
  push({ end, legs }) {
    let first = null;
    legs[CALLER].forEach(([caller], index) => {
      const at = end - (legs[CALLER].length - 1 - index) * FRAME_S;
      this.#take(caller, at);
      if (this.#begins(legs[AGENT][index][0])) first = this.#measured(at - FRAME_S);
    });
    return first;
  }

  #take(level, at) {
    this.#room = Math.max(1e-5, Math.min(level, this.#room * ROOM_RISE));
    const isVoice = level > Math.max(VOICE, VOICE_OVER_ROOM * this.#room);
    this.#run = isVoice ? this.#run + 1 : 0;
    if (this.#run >= VOICE_FRAMES) this.#voiceEnd = at;
  }

  #begins(level) {
    if (this.#expected === null) return false;
    if (level < SOUND) this.#wasSilent = true;
    return level >= SOUND && this.#wasSilent;
  }

  #measured(at) {
    const ms = this.#from === null ? null : (at - this.#from) * 1000;
    const first = { reply: this.#expected, ms };
    [this.#expected, this.#from] = [null, null];
    return first;
  }
}

const NAMES = { thinker: "thinking", text: "first clause", confirming: "being sure", pause: "silence" };
const WAY = "network and buffers";
const seconds = (ms) => `${(ms / 1000).toFixed(2)} s`;

export class LatencyStrip {
  #reply = null;
  #ear = null; // milliseconds, of this reply
  #stages = null;
  #all = [];

  // `parts`: elements ear, served, usual, bar and stages.
  constructor(parts) {
    this.parts = parts;
  }

  heard(reply, ms) {
    this.#turnTo(reply);
    this.#ear = ms;
    this.#all.push(ms);
    this.#show();
  }

  served(reply, ms) {
    this.#turnTo(reply);
    this.#stages = ms;
    this.#show();
  }

  #turnTo(reply) {
    if (reply !== this.#reply) [this.#reply, this.#ear, this.#stages] = [reply, null, null];
  }

  #show() {
    const { ear, served, usual, bar, stages } = this.parts;
    const sorted = this.#all.toSorted((a, b) => a - b);
    ear.textContent = this.#ear === null ? "–" : seconds(this.#ear);
    served.textContent = this.#stages ? seconds(this.#stages.total) : "–";
    usual.textContent = sorted.length > 0 ? seconds(sorted[(sorted.length - 1) >> 1]) : "–";
    const spent = this.#spent();
    bar.replaceChildren(...spent.map(([name, ms]) => segment(name, ms)));
    stages.replaceChildren(...spent.map(([name, ms]) => item(name, ms)));
  }

  // The server's stages, and what came on top on the way.
  #spent() {
    const { total = 0, ...stages } = this.#stages ?? {};
    const spent = Object.entries(stages).map(([name, ms]) => [NAMES[name] ?? name.replaceAll("_", " "), ms]);
    if (this.#stages && this.#ear !== null) spent.push([WAY, Math.max(0, this.#ear - total)]);
    return spent;
  }
}

function segment(name, ms) {
  const part = document.createElement("span");
  part.className = name === WAY ? "way" : "";
  part.style.flexGrow = Math.max(0, ms);
  return part;
}

function item(name, ms) {
  const entry = document.createElement("li");
  entry.className = name === WAY ? "way" : "";
  entry.append(`${name} `, Object.assign(document.createElement("b"), { textContent: `${Math.round(ms)} ms` }));
  return entry;
}
