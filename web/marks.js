// When words are heard on a line that tells only how long its sound takes to the ear. Times in milliseconds.
//
// A mark stands at the sound that comes when it is made, or a guessed while after it. Where the next one without a guess
// stands, all before it have been reached.

export class Marks {
  #marks = []; // {reply, id, due}, in order
  #heldAt = Infinity; // sound from then on is not played for now

  constructor(onReached) {
    this.onReached = onReached;
  }

  // `delay`: from here to the ear. `ahead`: how far behind the sound that comes now.
  add(reply, id, now, delay, ahead) {
    const [sounds, due] = [now + delay, now + delay + ahead];
    if (ahead === 0) this.#marks.forEach((mark) => (mark.due = Math.min(mark.due, sounds)));
    this.#marks.push({ reply, id, due });
  }

  hold(now) {
    this.#heldAt = Math.min(this.#heldAt, now);
  }

  release(now, delay) {
    if (this.#heldAt === Infinity) return;
    const later = Math.max(0, now + delay - this.#heldAt);
    this.#marks.forEach((mark) => (mark.due += mark.due >= this.#heldAt ? later : 0));
    this.#heldAt = Infinity;
  }

  drop(reply) {
    this.#marks = this.#marks.filter((mark) => mark.reply !== reply);
    this.#heldAt = Infinity;
  }

  advance(now) {
    const until = Math.min(now, this.#heldAt);
    while (this.#marks[0]?.due <= until) this.onReached(this.#marks.shift().id);
  }
}
