// The page: one call at a time. The worklets handle the audio; this file joins them to the server and to the screen.

const INPUT_RATES_HZ = [8000, 16000, 24000, 48000];
const OUTPUT_RATE_HZ = 24000;
const MICROPHONE = { audio: { channelCount: 1, echoCancellation: true, noiseSuppression: true } };

const STATES = {
  idle: "Press “Start talking” and speak.",
  connecting: "Connecting…",
  listening: "Listening",
  hearing: "Hearing you",
  thinking: "Thinking…",
  speaking: "Speaking",
};
const NOT_READY = "The server is still loading its models. Try again in a moment.";
const UNREACHABLE = "The server cannot be reached. Is it running?";
const FAULTS = {
  NotAllowedError: "The microphone is blocked. Allow it for this page in the browser, or type a question.",
  NotFoundError: "No microphone was found. Connect one and start again, or type a question.",
  NotReadableError: "Another program is using the microphone.",
  AbortError: UNREACHABLE, // a worklet did not load
  not_ready: NOT_READY,
  too_many_sessions: "The server has no room for another conversation. Try again later.",
  too_many_attempts: "Too many attempts. Try again in a minute.",
};
const INSECURE = "The browser gives a page the microphone only on https or on localhost.";
const LOST = "The connection to the server was lost. Start again to reconnect.";
const DROPPED = "The connection to the server was lost. Press “Reconnect” to go on with this conversation.";
const REFUSED = "The server refused this page. If it was started with a token, add ?token=… to the address; one for a short time may be over.";

const page = Object.fromEntries([...document.querySelectorAll("[id]")].map((node) => [node.id, node]));

let call = null;
let kept = null; // the resume token of a conversation whose connection was lost

function showState(name, text = STATES[name]) {
  page.state.dataset.state = name;
  if (page.state.textContent !== text) page.state.textContent = text;
  page.talk.textContent = call ? "Stop" : kept ? "Reconnect" : "Start talking";
  page.interrupt.disabled = name !== "speaking" && name !== "thinking";
}

function add(parent, tag, text) {
  const node = parent.appendChild(document.createElement(tag));
  node.textContent = text;
  page.log.scrollTop = page.log.scrollHeight;
  return node;
}

function addTurn(kind, speaker, text) {
  const turn = add(page.log, "li", "");
  turn.className = kind;
  turn.ariaBusy = String(kind === "agent"); // until the reply is whole: a screen reader then reads it in one piece
  add(turn, "strong", speaker);
  add(turn, "p", text);
  return turn;
}

// Strike out the words of an agent's entry that were not heard: those after as many as `heard` has.
function strikeUnheard(turn, heard) {
  const shown = turn.querySelector("p");
  const words = shown.textContent.match(/\S+\s*/g) ?? [];
  const count = heard.match(/\S+/g)?.length ?? 0;
  shown.textContent = words.slice(0, count).join("");
  if (count < words.length) add(shown, "s", words.slice(count).join(""));
}

// From pressing the button to the end of the connection. `resume` is the token of a conversation to go on with.
// `onEnd` is called once, with an error text, the server's goodbye and a token to come back with. Each may be null.
class Call {
  over = false;
  ready = false;
  hearing = false; // the caller speaks
  audible = false; // the agent speaks
  expecting = false; // a reply is being made
  fault = null; // what the server complained of last
  goodbye = null; // why the server is about to close
  reply = null; // binary messages belong to it
  turns = new Map(); // reply -> its entry in the log
  early = []; // messages for the server before it is ready
  partial = null; // the entry with the caller's words so far

  constructor(resume, onEnd) {
    this.resume = resume;
    this.onEnd = onEnd;
  }

  async start(withMicrophone) {
    showState("connecting");
    try {
      if (withMicrophone && !navigator.mediaDevices) throw new Error(INSECURE);
      if (withMicrophone) this.stream = await navigator.mediaDevices.getUserMedia(MICROPHONE);
      await this.openAudio();
    } catch (error) {
      this.end(FAULTS[error.name] ?? error.message);
    }
    if (this.over) this.end(); // stopped while the browser was asking: let go of what it gave
    else this.connect();
  }

  async openAudio() {
    const [context, microphone] = joinAudio(this.stream);
    this.context = context;
    this.inputRate = INPUT_RATES_HZ.includes(context.sampleRate) ? context.sampleRate : 16000;
    await context.audioWorklet.addModule("playback-worklet.js");
    this.playback = worklet(context, "playback", OUTPUT_RATE_HZ, { numberOfInputs: 0, outputChannelCount: [1] });
    this.playback.port.onmessage = ({ data }) => this.played(data);
    this.playback.connect(context.destination);
    if (!microphone) return;
    await context.audioWorklet.addModule("capture-worklet.js");
    const capture = worklet(context, "capture", this.inputRate, { numberOfOutputs: 0 });
    capture.port.onmessage = ({ data }) => this.captured(data);
    microphone.connect(capture);
  }

  connect() {
    const url = new URL(`/v1/pcm${location.search}`, location.href.replace(/^http/, "ws")); // with the page's ?token=
    url.searchParams.set("input_rate", this.inputRate);
    url.searchParams.set("output_rate", OUTPUT_RATE_HZ);
    if (this.resume) url.searchParams.set("resume", this.resume);
    this.socket = new WebSocket(url);
    this.socket.binaryType = "arraybuffer";
    this.socket.onmessage = ({ data }) => (typeof data === "string" ? this.receive(JSON.parse(data)) : this.play(data));
    this.socket.onclose = ({ reason }) => this.lost(reason);
  }

  captured({ pcm, level }) {
    if (this.over) return;
    page.level.value = level;
    if (this.ready) this.socket.send(pcm);
  }

  play(pcm) {
    this.playback.port.postMessage({ pcm, reply: this.reply }, [pcm]);
    this.audible = true;
    this.show();
  }

  played({ reply, ms, idle }) {
    if (this.over) return;
    this.send({ type: "played", reply, ms });
    this.audible = !idle;
    this.show();
  }

  send(message) {
    if (this.ready) this.socket.send(JSON.stringify(message));
    else this.early.push(message);
  }

  receive(message) {
    this.fault = null;
    this.on[message.type]?.(message);
    this.show();
  }

  on = {
    ready: ({ resume = null }) => {
      Object.assign(this, { ready: true, resume });
      this.early.splice(0).forEach((message) => this.send(message));
    },
    speech_started: () => (this.hearing = true),
    speech_stopped: () => (this.hearing = false), // a cough ends here: only words are thought about
    transcript: ({ text, final }) => {
      this.partial?.remove();
      this.partial = addTurn("caller", "You", text);
      this.partial.classList.toggle("partial", !final);
      this.partial.ariaBusy = String(!final);
      if (final) Object.assign(this, { partial: null, expecting: true });
    },
    reply_started: ({ reply }) => Object.assign(this, { reply, expecting: true }),
    reply_text: ({ reply, text }) => add(this.turn(reply).querySelector("p"), "span", text),
    pause: ({ reply }) => reply === this.reply && this.playback.port.postMessage({ pause: reply }),
    resume: ({ reply }) => reply === this.reply && this.playback.port.postMessage({ resume: reply }),
    flush: ({ reply }) => this.playback.port.postMessage({ flush: reply }),
    reply_done: ({ reply, status, heard }) => {
      if (reply === this.reply) this.expecting = false;
      const turn = this.turns.get(reply);
      if (!turn) return;
      turn.ariaBusy = "false";
      if (status === "completed") return;
      if (heard !== undefined) strikeUnheard(turn, heard);
      add(turn, "small", status);
    },
    timing: ({ reply, ms }) => {
      const text = Object.entries(ms).map(([stage, value]) => `${stage.replaceAll("_", " ")} ${Math.round(value)} ms`);
      if (this.turns.has(reply)) add(this.turn(reply), "small", text.join(" · "));
    },
    closing: ({ reason }) => (this.goodbye = `The server ends this call: ${reason.replaceAll("_", " ")}.`),
    error: ({ code, message }) => Object.assign(this, { fault: FAULTS[code] ?? message, expecting: false }),
  };

  turn(reply) {
    if (!this.turns.has(reply)) this.turns.set(reply, addTurn("agent", "Agent", ""));
    return this.turns.get(reply);
  }

  show() {
    if (this.over || !this.ready) return;
    const quiet = this.expecting ? "thinking" : "listening";
    const state = this.hearing ? "hearing" : this.audible ? "speaking" : quiet;
    showState(state, this.goodbye ?? this.fault ?? STATES[state]);
  }

  ask(text) {
    addTurn("caller", "You", text);
    this.send({ type: "text", text });
    Object.assign(this, { fault: null, expecting: true });
    this.show();
  }

  // A browser hides why a WebSocket was refused, so ask in plain HTTP.
  async lost(reason) {
    const health = () => fetch("/health").then(({ ok }) => (ok ? REFUSED : NOT_READY), () => UNREACHABLE);
    const told = reason === "resumed_elsewhere" ? "This conversation goes on in another window." : this.fault || reason;
    if (this.goodbye) this.end();
    else if (told) this.end(told);
    else if (this.ready) this.end(this.resume ? DROPPED : LOST, this.resume);
    else {
      const why = await health();
      this.end(why, why === UNREACHABLE ? this.resume : null);
    }
  }

  end(error = null, resume = null) {
    const first = !this.over;
    this.over = true;
    this.stream?.getTracks().forEach((track) => track.stop());
    this.socket?.close();
    if (this.context && this.context.state !== "closed") this.context.close();
    if (first) this.onEnd(error, this.goodbye, resume);
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

function begin(withMicrophone) {
  call = new Call(kept, (error, goodbye, resume) => {
    [call, kept] = [null, resume];
    page.level.value = 0;
    showState(error ? "error" : "idle", error ?? goodbye ?? STATES.idle);
  });
  call.start(withMicrophone);
}

page.talk.onclick = () => (call ? call.end() : begin(true));
page.interrupt.onclick = () => call?.send({ type: "interrupt" });
document.addEventListener("keydown", ({ key }) => {
  if (key === "Escape") page.interrupt.click(); // a disabled button ignores it
});
page.ask.onsubmit = (event) => {
  event.preventDefault();
  if (!call) begin(false);
  call.ask(page.question.value.trim());
  page.question.value = "";
};
