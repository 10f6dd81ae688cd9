// One answer: its text, canvas, lanes and counters.

import { cursor, drawChart } from "./chart.js";
import { drawParts } from "./parts.js";
import { Canvas, count, isCommitted, laneName } from "./trace.js";

/** Duration of a step in a replay, in milliseconds. */
const PACE = 220;
const SHOWN = { "\n": "⏎", "\t": "⇥" };

const visible = (text) =>
  text.replace(/[\n\t]/g, (found) => SHOWN[found]).replace(/^<\|(.*)\|>$/, "⟨$1⟩");

function make(name, className, ...children) {
  const made = document.createElement(name);
  made.className = className;
  made.append(...children);
  return made;
}

/** A panel made from the template `panel`. */
export class Panel {
  #root;
  #at = {};
  #open = null;
  #canvas = null;
  #events = [];
  #rows = [];
  #text = "";
  #textAt = [];
  #parts = [];
  #partsAt = [];
  #began = 0;
  #frame = 0;
  #player = 0;
  #command = "";
  /** Forwards and positions that the chart shows; charts in a race share the larger scale. */
  scale = { forwards: 0, positions: 1 };
  /** Called when the scale grows. */
  onscale = () => {};

  constructor(template, title) {
    this.#root = template.content.firstElementChild.cloneNode(true);
    for (const name of ["name", "error", "command", "answer", "cells", "rest", "chart", "tree",
      "copy", "replay", "position"]) {
      this.#at[name] = this.#root.querySelector(`.${name}`);
    }
    this.#at.title = this.#root.querySelector("h2");
    this.#at.slider = this.#root.querySelector("input[type=range]");
    this.#at.title.textContent = title;
    this.#root.setAttribute("aria-label", title);
    this.#at.answer.setAttribute("aria-label", `Answer, ${title}`);
    this.#at.text = this.#at.answer.appendChild(document.createTextNode(""));
    this.#at.parts = this.#at.answer.appendChild(make("div", "parts"));
    this.#at.slider.addEventListener("input", () => {
      this.#pause();
      this.#show(this.#at.slider.valueAsNumber);
    });
    this.#at.replay.addEventListener("click", () => (this.#player ? this.#pause() : this.#play()));
    this.#at.copy.addEventListener("click", () => this.#copy());
  }

  get element() {
    return this.#root;
  }

  /** Number of its forward passes, for a race. */
  get forwards() {
    return this.#canvas?.step ?? 0;
  }

  /** The text of the answer. */
  get text() {
    return this.#text;
  }

  /** Clears the last answer and waits for one of the decoder `name`. */
  begin(name, command) {
    this.#pause();
    this.#open = this.#canvas = null;
    this.#events = [];
    this.#rows = [];
    this.#textAt = [];
    this.#text = this.#at.text.data = "";
    this.#parts = [];
    this.#partsAt = [];
    this.#at.parts.replaceChildren();
    this.#command = command;
    this.scale = { forwards: 0, positions: 1 };
    this.#at.name.textContent = name;
    this.#at.error.hidden = this.#at.command.hidden = true;
    this.#at.copy.disabled = false;
    this.#at.copy.textContent = "Copy as curl";
    this.#at.replay.disabled = this.#at.slider.disabled = true;
    for (const part of ["cells", "chart", "tree", "rest"]) this.#at[part].replaceChildren();
    for (const part of ["cells", "chart"]) this.#at[part].setAttribute("aria-label", "no answer yet");
    this.#at.slider.max = this.#at.slider.value = 0;
    this.#at.position.textContent = "0 / 0";
    this.#at.name.title = "";
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    this.#tell({});
    this.#at.answer.setAttribute("aria-busy", "true");
    this.#root.dataset.state = "running";
    this.#began = performance.now();
  }

  /** Handlers of the trace's events. */
  events = {
    open: (open) => {
      this.#open = open;
      this.#canvas = new Canvas(open);
    },
    step: (event) => {
      this.#events.push(event);
      const row = this.#canvas.apply(event);
      this.#rows.push(row);
      this.#textAt.push(this.#text.length);
      this.#partsAt.push(this.#parts.length);
      this.scale.forwards = Math.max(this.scale.forwards, event.step);
      const ends = row.bars.map(({ start, len }) => start + len);
      this.scale.positions = Math.max(this.scale.positions, this.#canvas.reached(), ...ends);
      this.onscale();
      const forwards = event.step;
      const tokens = this.#canvas.frontier;
      this.#tell({ tokens, forwards, tpf: tokens / forwards, tps: tokens / this.seconds });
      this.#frame ||= requestAnimationFrame(() => this.#draw());
    },
    text: ({ text }) => {
      this.#text += text;
      if (this.#textAt.length > 0) this.#textAt[this.#textAt.length - 1] = this.#text.length;
      this.#drawAnswer(this.#text, this.#parts);
    },
    parts: ({ parts }) => {
      this.#parts.push(...parts);
      if (this.#partsAt.length > 0) this.#partsAt[this.#partsAt.length - 1] = this.#parts.length;
      this.#drawAnswer(this.#text, this.#parts);
    },
    done: ({ usage }) => {
      const { forwards, tokens_per_forward: tpf, decoder } = usage.diffusion;
      const tokens = usage.completion_tokens;
      this.#tell({ tokens, forwards, tpf, tps: tokens / this.seconds });
      this.#at.name.title = decoder;
    },
  };

  /** Seconds since the request was sent. */
  get seconds() {
    return (performance.now() - this.#began) / 1000;
  }

  /** The answer ended: `done`, `stopped` or `failed` with an error. */
  end(state, error) {
    this.#root.dataset.state = state;
    this.#at.answer.setAttribute("aria-busy", "false");
    if (error) {
      // Messages begin with the field's name, where a field is at fault.
      const { message, param } = error;
      const begins = param && message.startsWith(param);
      const named = begins ? [make("code", "", param), message.slice(param.length)] : [message];
      this.#at.error.replaceChildren(...named);
      this.#at.error.hidden = false;
    }
    // A run that failed has no cost.
    if (state === "failed") this.#tell({});
    const steps = this.#events.length;
    this.#at.replay.disabled = this.#at.slider.disabled = steps === 0;
    this.#at.slider.max = steps;
    if (this.#canvas) this.#draw();
  }

  /** Draws anew what is shown, after `scale` has changed. */
  redraw() {
    if (this.#canvas) this.#frame ||= requestAnimationFrame(() => this.#draw());
  }

  #draw() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    const steps = this.#events.length;
    this.#at.slider.max = steps;
    this.#drawCanvas(this.#canvas, steps);
  }

  #drawCanvas(canvas, steps) {
    this.#drawCells(canvas);
    const chart = drawChart(this.#rows, this.#canvas.lanes, this.scale);
    if (steps < this.#rows.length) chart.append(cursor(this.#rows, steps, this.scale));
    this.#at.chart.replaceChildren(chart);
    const lanes = count(this.#canvas.lanes.length, "lane");
    const forwards = this.#canvas.step;
    this.#at.chart.setAttribute("aria-label", `${lanes} over ${count(forwards, "forward")}`);
    this.#at.slider.value = steps;
    this.#at.position.textContent = `${canvas.step} / ${forwards}`;
    this.#drawTree(canvas);
  }

  /** Draws the text of an answer, or the parts of one that has parts. */
  #drawAnswer(text, parts) {
    if (this.#open.has_parts) this.#at.parts.replaceChildren(...drawParts(parts));
    else this.#at.text.data = text;
  }

  #drawCells(canvas) {
    const cells = this.#at.cells;
    const positions = canvas.positions();
    let committed = 0;
    for (const { offset, cell, lane, first } of positions) {
      const span = cells.children[offset] ?? cells.appendChild(document.createElement("span"));
      const kind = cell?.state ?? "masked";
      const place = canvas.frontier === offset + 1 ? "frontier" : "";
      const role = cell?.role ?? lane?.role ?? "";
      const className = `cell ${kind} ${role} ${lane?.state ?? ""} ${place}`;
      if (span.className !== className) span.className = className;
      const text = cell ? visible(cell.text) : "";
      if (span.textContent !== text) span.textContent = text;
      const held = cell ? `: ${cell.state}, ${cell.probability.toFixed(3)}` : "";
      if (span.title !== offset + held) span.title = offset + held;
      if (first) span.dataset.lane = laneName(lane);
      else delete span.dataset.lane;
      committed += isCommitted(cell) ? 1 : 0;
    }
    while (cells.children.length > positions.length) cells.lastChild.remove();
    const label = `${committed} of ${positions.length} positions committed`;
    cells.setAttribute("aria-label", label);
    const rest = canvas.length - positions.length;
    this.#at.rest.textContent = rest > 0 ? `and ${count(rest, "mask")} right of all lanes` : "";
  }

  #drawTree(canvas) {
    const lists = [];
    for (const lane of canvas.lanes) {
      if (!lane) continue;
      const end = lane.start + lane.len;
      const isNext = (other) => other?.parent === lane.id && other.start > lane.start;
      const split = canvas.lanes.find(isNext);
      const forked = lane.state === "forked";
      const state = forked && split ? `forked at ${split.start}` : lane.state;
      const told = ` [${lane.start}, ${end}) ${state}, ${count(lane.clock, "forward")}`;
      const badge = make("i", `badge ${lane.role}`, laneName(lane));
      const item = make("li", lane.state, badge, ` ${lane.role}${told}`);
      const parent = canvas.lanes[lane.parent];
      // A lane that was spawned, not forked, has the level of its parent.
      const above = parent?.state === "forked" ? parent.id : lists[parent?.id]?.above;
      lists[lane.id] = { above, list: null, item };
      const owner = lists[above];
      if (owner) owner.list ??= owner.item.appendChild(make("ul", ""));
      (owner?.list ?? (lists.top ??= make("ul", ""))).append(item);
    }
    this.#at.tree.replaceChildren(...(lists.top?.children ?? []));
  }

  #tell(counts) {
    for (const place of this.#root.querySelectorAll("[data-count]")) {
      const value = counts[place.dataset.count];
      const digits = Number.isInteger(value) || value >= 100 ? 0 : 1;
      place.textContent = Number.isFinite(value) ? value.toFixed(digits) : "–";
    }
  }

  /** Shows the answer after `steps` steps. */
  #show(steps) {
    const canvas = new Canvas(this.#open);
    for (const event of this.#events.slice(0, steps)) canvas.apply(event);
    const isLast = steps === this.#events.length;
    const upTo = (at, all) => (isLast ? all.length : steps > 0 ? at[steps - 1] : 0);
    this.#drawAnswer(
      this.#text.slice(0, upTo(this.#textAt, this.#text)),
      this.#parts.slice(0, upTo(this.#partsAt, this.#parts)),
    );
    this.#drawCanvas(canvas, steps);
  }

  /** Shows the answer from its beginning, a step in `pace` milliseconds. */
  replay(pace) {
    this.#at.slider.value = 0;
    this.#root.dataset.state = "replaying";
    this.#play(pace);
  }

  /** The chart and the counters, for a picture. */
  get picture() {
    const counts = [...this.#root.querySelectorAll("[data-count]")].map((place) => {
      const name = place.previousElementSibling.textContent;
      return `${name} ${place.textContent}`;
    });
    const title = `${this.#at.title.textContent}: ${this.#at.name.textContent}`;
    return { title, counts, text: this.#text, rows: this.#rows, scale: this.scale };
  }

  #play(pace = PACE) {
    const slider = this.#at.slider;
    let steps = slider.valueAsNumber < this.#events.length ? slider.valueAsNumber : 0;
    this.#at.replay.textContent = "Pause";
    this.#at.answer.setAttribute("aria-live", "off");
    const next = () => {
      this.#show(steps);
      steps += 1;
      if (steps > this.#events.length) this.#pause();
    };
    this.#player = setInterval(next, pace);
    next();
  }

  #pause() {
    clearInterval(this.#player);
    this.#player = 0;
    if (this.#root.dataset.state === "replaying") this.#root.dataset.state = "done";
    this.#at.replay.textContent = "Replay";
    this.#at.answer.setAttribute("aria-live", "polite");
  }

  async #copy() {
    try {
      await navigator.clipboard.writeText(this.#command);
      this.#at.copy.textContent = "Copied";
    } catch {
      // Without TLS only local pages may use the clipboard: show the text for copying.
      this.#at.command.textContent = this.#command;
      this.#at.command.hidden = false;
      getSelection().selectAllChildren(this.#at.command);
    }
  }
}
