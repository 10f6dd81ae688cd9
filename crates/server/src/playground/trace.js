// A traced answer as data: positions and lanes, updated by its steps.

/** A number with its noun. */
export const count = (number, what) => `${number} ${what}${number === 1 ? "" : "s"}`;

/** The name of a lane: the letter of its role, and its number. */
export const laneName = (lane) => (lane.role === "refine" ? "R" : "G") + lane.id;

/** States of cells that may change. */
const OPEN = ["masked", "provisional", "kept", "renoised"];

/** Whether a cell of `positions` has a committed or given token. */
export const isCommitted = (cell) => cell !== null && !OPEN.includes(cell.state);

/** The positions and lanes after the applied steps. */
export class Canvas {
  /** By offset: {text, probability, state, role of the lane that wrote it}; missing entries are masks. */
  cells = [];
  /** By number. */
  lanes = [];
  frontier = 0;
  length = 0;
  step = 0;

  /** The data of an `open` event. */
  constructor(open) {
    this.length = open.budget;
    for (const [offset, , text] of open.pins ?? []) {
      this.cells[offset] = { text, probability: 1, state: "given", role: "" };
    }
  }

  /** Applies the data of a `step` event; returns its row of the chart. */
  apply(event) {
    const row = this.#row(event);
    const writer = this.#writer(event.lanes);
    for (const [offset, , text, probability, state] of event.cells) {
      if (state === "masked") delete this.cells[offset];
      else this.cells[offset] = { text, probability, state, role: writer(offset) };
    }
    for (const lane of event.lanes) this.lanes[lane.id] = lane;
    this.frontier = event.frontier;
    this.length = event.canvas;
    this.cells.length = Math.min(this.cells.length, this.length);
    this.step = event.step;
    return row;
  }

  /** The role of the lane that commits at an offset in a step; drafts are beyond all lanes. */
  #writer(lanes) {
    const before = this.leaves();
    const owners = before.length > 0 ? before : lanes;
    const owns = (offset) => ({ start, len }) => offset >= start && offset < start + len;
    return (offset) => owners.find(owns(offset))?.role ?? "generate";
  }

  /** The lanes that ran, with their ranges before the step, and the changed positions. */
  #row({ step, skipped, lanes, cells }) {
    const bars = [];
    for (const lane of lanes) {
      const before = this.lanes[lane.id];
      if (lane.clock > (before?.clock ?? 0)) {
        const { start, len } = before ?? lane;
        bars.push({ id: lane.id, role: lane.role, start, len });
      }
    }
    const marks = cells.map(([offset, , , , state]) => ({ offset, state }));
    return { step, height: 1 + skipped, bars, marks };
  }

  /** The lanes that own positions, from left to right; children own those of a forked lane. */
  leaves() {
    const owns = (lane) => lane.state !== "forked" && lane.len > 0;
    return this.lanes.filter(owns).sort((a, b) => a.start - b.start);
  }

  /** The end of the last lane or token; only masks follow. */
  reached() {
    const ends = this.leaves().map((lane) => lane.start + lane.len);
    return Math.min(this.length, Math.max(this.cells.length, ...ends, 0));
  }

  /** Every position up to `reached`: its cell or null, its lane or null, whether the lane begins. */
  positions() {
    const leaves = this.leaves();
    let at = 0;
    return Array.from({ length: this.reached() }, (_, offset) => {
      while (at < leaves.length && offset >= leaves[at].start + leaves[at].len) at += 1;
      const lane = at < leaves.length && offset >= leaves[at].start ? leaves[at] : null;
      return { offset, cell: this.cells[offset] ?? null, lane, first: lane?.start === offset };
    });
  }
}
