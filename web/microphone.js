// Which microphone, and whether the browser cancels the agent's echo in it. The choice is kept for the next visit.

import { INSECURE } from "./texts.js";

const KEPT_AS = "microphone";

export class Microphone {
  // `choice`: a select. `echo`: a checkbox. `onChange`: when the caller has chosen.
  constructor(choice, echo, onChange) {
    Object.assign(this, { choice, echo });
    const { device = "", cancelsEcho = true } = kept();
    this.device = device;
    echo.checked = cancelsEcho;
    const change = () => {
      this.device = choice.value;
      keep({ device: this.device, cancelsEcho: echo.checked });
      onChange();
    };
    choice.onchange = change;
    echo.onchange = change;
    navigator.mediaDevices?.addEventListener("devicechange", () => this.list());
    this.list();
  }

  async open() {
    if (!navigator.mediaDevices) throw new Error(INSECURE);
    const audio = {
      deviceId: this.device ? { ideal: this.device } : undefined, // one that is gone gives way to another
      channelCount: 1,
      echoCancellation: this.echo.checked,
      noiseSuppression: false, // it swallows the soft beginnings of words, and with them interruptions
    };
    const stream = await navigator.mediaDevices.getUserMedia({ audio });
    this.list(); // names are told only once a microphone was allowed
    return stream;
  }

  async list() {
    const devices = (await navigator.mediaDevices?.enumerateDevices()) ?? [];
    const inputs = devices.filter(({ kind, deviceId }) => kind === "audioinput" && !["", "default"].includes(deviceId));
    const options = inputs.map(({ label, deviceId }) => new Option(label || "Microphone", deviceId));
    this.choice.replaceChildren(new Option("Default microphone", ""), ...options);
    this.choice.value = inputs.some(({ deviceId }) => deviceId === this.device) ? this.device : "";
  }
}

// A browser may keep nothing for us: then each visit begins anew.
function kept() {
  try {
    return JSON.parse(localStorage.getItem(KEPT_AS)) ?? {};
  } catch {
    return {};
  }
}

function keep(settings) {
  try {
    localStorage.setItem(KEPT_AS, JSON.stringify(settings));
  } catch {
    return;
  }
}
