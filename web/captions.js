// The conversation in words. The agent's light up as they are heard; those that never were are struck out.

// Of a piece of text only the beginning is known to the sample. Its words follow at the pace of calm English speech,
// until the next piece tells better.
const MS_PER_CHARACTER = 65;
const NEAR_PX = 80; // so near to the end of the log the reader follows it

export class Captions {
  #turns = new Map(); // reply -> its entry
  #open = new Set(); // replies that are not over
  #words = new Map(); // id -> its element, until it is heard
  #partial = null; // the entry with the caller's words so far
  #count = 0;
  #isFollowed = true; // the reader is at the end of the log

  constructor(log) {
    this.log = log;
    log.onscroll = () => (this.#isFollowed = log.scrollHeight - log.scrollTop - log.clientHeight < NEAR_PX);
    new ResizeObserver(() => this.#follow()).observe(log);
  }

  caller(text, isFinal) {
    this.#partial ??= this.#turn("caller", "You");
    this.#partial.querySelector("p").textContent = text;
    this.#partial.classList.toggle("partial", !isFinal);
    this.#partial.ariaBusy = String(!isFinal);
    if (isFinal) this.#partial = null;
    this.#follow();
  }

  // Adds words of a reply; tells of each its id and how many milliseconds after the first it is about to come.
  words(reply, text) {
    const shown = this.#agent(reply).querySelector("p");
    const words = text.match(/\s*\S+\s*/g) ?? [];
    let characters = 0;
    const added = words.map((word) => {
      const id = ++this.#count;
      this.#words.set(id, add(shown, "span", word));
      characters += word.length;
      return [id, (characters - word.length) * MS_PER_CHARACTER];
    });
    this.#follow();
    return added;
  }

  light(id) {
    const word = this.#words.get(id);
    this.#words.delete(id);
    word?.parentElement.querySelector(".now")?.classList.remove("now");
    word?.classList.add("heard", "now");
  }

  done(reply, status, heard) {
    if (!this.#open.delete(reply)) return;
    const turn = this.#turns.get(reply);
    const shown = turn.querySelector("p");
    const words = [...shown.children];
    words.forEach((word) => (word.className = "heard"));
    for (const [id, word] of this.#words) if (word.parentElement === shown) this.#words.delete(id);
    if (status !== "completed") {
      if (heard !== undefined) cut(shown, words.slice(heard.match(/\S+/g)?.length ?? 0));
      add(turn, "small", status);
    }
    turn.ariaBusy = "false";
    this.#follow();
  }

  // The line is gone: what was not heard will not be.
  close() {
    for (const reply of this.#open) {
      const heard = [...this.#turns.get(reply).querySelectorAll(".heard")].map((word) => word.textContent);
      this.done(reply, "interrupted", heard.join(""));
    }
    if (this.#partial) this.#partial.ariaBusy = "false";
    this.#partial = null;
  }

  #agent(reply) {
    if (!this.#turns.has(reply)) {
      this.#turns.set(reply, this.#turn("agent", "Agent"));
      this.#open.add(reply);
    }
    return this.#turns.get(reply);
  }

  #turn(kind, speaker) {
    const turn = add(this.log, "li", "");
    turn.className = kind;
    turn.ariaBusy = "true"; // until it is whole: a screen reader then reads it in one piece
    add(turn, "strong", speaker);
    add(turn, "p", "");
    return turn;
  }

  #follow() {
    if (this.#isFollowed) this.log.scrollTop = this.log.scrollHeight;
  }
}

// Where the agent fell silent, and after it what it would have said.
function cut(shown, unheard) {
  if (unheard.length === 0) return;
  const mark = add(shown, "i", "");
  Object.assign(mark, { className: "cut", role: "img", ariaLabel: "interrupted here; not heard:" });
  add(shown, "s", unheard.map((word) => word.textContent).join(""));
  unheard.forEach((word) => word.remove());
}

function add(parent, tag, text) {
  const node = parent.appendChild(document.createElement(tag));
  node.textContent = text;
  return node;
}
