// The page: its controls, and one call at a time.

import { Call } from "./call.js";
import { Captions } from "./captions.js";
import { LatencyStrip } from "./latency.js";
import { Scope } from "./meters.js";
import { Microphone } from "./microphone.js";
import { LINES, STATES } from "./texts.js";

const page = Object.fromEntries([...document.querySelectorAll("[id]")].map((node) => [node.id, node]));
const parts = {
  captions: new Captions(page.log),
  scope: new Scope([
    { canvas: page.callerWave, meter: page.callerLevel },
    { canvas: page.agentWave, meter: page.agentLevel },
  ]),
  latency: new LatencyStrip({ ear: page.ear, served: page.served, usual: page.usual, bar: page.bar, stages: page.stages }),
  microphone: new Microphone(page.choice, page.echo, () => call?.changeMicrophone()),
};

page.where.open = matchMedia("(min-width: 40rem)").matches; // a phone has no room for it until it is asked for

let call = null;
let kept = null; // the resume token of a conversation whose connection was lost

function showState(name, notice = null) {
  page.state.dataset.state = name;
  page.state.textContent = STATES[name];
  const told = notice ?? "";
  if (page.notice.textContent !== told) page.notice.textContent = told; // a live region: said anew at each change
  page.talk.textContent = call ? "Stop" : kept ? "Reconnect" : "Start talking";
  page.talk.dataset.calling = String(call !== null);
  page.interrupt.disabled = name !== "speaking" && name !== "thinking";
}

function showLine(kind) {
  [page.line.textContent, page.line.title] = LINES[kind];
  page.line.dataset.line = kind;
}

const tell = {
  state: showState,
  line: showLine,
  ready: ({ recorded }) => (page.recorded.hidden = !recorded),
  end: (error, goodbye, resume) => {
    [call, kept] = [null, resume];
    parts.scope.rest();
    page.recorded.hidden = true;
    showLine("none");
    showState(error ? "error" : "idle", error ?? goodbye);
  },
};

function begin(withMicrophone) {
  call = new Call(kept, parts, tell);
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
addEventListener("pagehide", () => call?.end());
