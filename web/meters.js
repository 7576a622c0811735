// What is heard of each side: its level now, and its waveform over the last seconds.

import { AGENT, CALLER, SOUND } from "./legs.js";

const BAR_PX = 3; // and one of them between two bars; a bar is one message of the worklet, 50 ms
const FLOOR_DB = 60; // below full scale: that and less is an empty meter
const CUT_BARS = 20; // what was on its way at a cut has sounded by then

const fullness = (level) => Math.max(0, 1 + (20 * Math.log10(level + 1e-6)) / FLOOR_DB);
const height = (peak) => Math.min(1, Math.sqrt(peak)); // quiet sounds are seen, loud ones have a shape

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
  #bars = []; // {height, isCut}, the newest last
  #cutting = 0; // bars until a cut is drawn at the latest
  #drawing = false;

  constructor(canvas, meter) {
    Object.assign(this, { canvas, meter });
    new ResizeObserver(() => this.#draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#draw());
  }

  push(frames) {
    const [square, peak] = frames.reduce(([sum, most], [level, top]) => [sum + level ** 2, Math.max(most, top)], [0, 0]);
    this.meter.value = fullness(Math.sqrt(square / frames.length));
    const isCut = this.#cutting > 0 && (peak < SOUND || this.#cutting === 1);
    this.#cutting = isCut ? 0 : Math.max(0, this.#cutting - 1);
    this.#bars.push({ height: height(peak), isCut });
    this.#draw();
  }

  // Drawn where the sound really ends.
  cut() {
    this.#cutting = CUT_BARS;
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
      pen.fillStyle = bar.isCut ? outlineColor : color;
      if (bar.isCut) pen.fillRect(x, 0, BAR_PX - 1, tall);
      else pen.fillRect(x, (tall - reach) / 2, BAR_PX - 1, reach);
    });
  }
}
