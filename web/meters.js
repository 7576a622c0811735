// What is heard of each side: its level now, and its waveform over the last seconds.

import { AGENT, CALLER } from "./legs.js";

const BAR_PX = 3; // and one of them between two bars; a bar is one message of the worklet, 50 ms
const FLOOR_DB = 60; // below full scale: that and less is an empty meter

const decibels = (level) => 20 * Math.log10(level + 1e-6);
const height = (level) => Math.max(0, 1 + decibels(level) / FLOOR_DB);

export class Scope {
  // `lanes`: for each leg its canvas and its meter.
  constructor(lanes) {
    this.lanes = lanes.map(({ canvas, meter }) => new Lane(canvas, meter));
  }

  push(legs) {
    [CALLER, AGENT].forEach((leg) => this.lanes[leg].push(legs[leg]));
  }

  cut() {
    this.lanes[AGENT].cut();
  }

  rest() {
    this.lanes.forEach((lane) => lane.rest());
  }
}

class Lane {
  #bars = []; // {height, cut}, the newest last
  #isCut = false;
  #drawing = false;

  constructor(canvas, meter) {
    Object.assign(this, { canvas, meter });
    new ResizeObserver(() => this.#draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#draw());
  }

  push(frames) {
    const [square, peak] = frames.reduce(([sum, most], [level, top]) => [sum + level ** 2, Math.max(most, top)], [0, 0]);
    this.meter.value = height(Math.sqrt(square / frames.length));
    this.#bars.push({ height: height(peak), cut: this.#isCut });
    this.#isCut = false;
    this.#draw();
  }

  cut() {
    this.#isCut = true;
  }

  rest() {
    this.meter.value = 0;
  }

  // A page that is not looked at draws nothing.
  #draw() {
    if (this.#drawing) return;
    this.#drawing = true;
    requestAnimationFrame(() => {
      this.#drawing = false;
      this.#paint();
    });
  }

  #paint() {
    const { canvas } = this;
    const [width, tall, ratio] = [canvas.clientWidth, canvas.clientHeight, devicePixelRatio];
    canvas.width = width * ratio;
    canvas.height = tall * ratio;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const { color, borderColor, outlineColor } = getComputedStyle(canvas);
    pen.fillStyle = borderColor;
    pen.fillRect(0, tall / 2 - 0.5, width, 1);
    this.#bars.splice(0, this.#bars.length - Math.ceil(width / BAR_PX));
    this.#bars.forEach((bar, index) => {
      const x = width - (this.#bars.length - index) * BAR_PX;
      const reach = Math.max(1, bar.height * (tall - 2));
      pen.fillStyle = bar.cut ? outlineColor : color;
      if (bar.cut) pen.fillRect(x, 0, BAR_PX - 1, tall);
      else if (bar.height > 0) pen.fillRect(x, (tall - reach) / 2, BAR_PX - 1, reach);
    });
  }
}
