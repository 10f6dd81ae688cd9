// The lanes of an answer over its forward passes: x is the position, y the forward.

import { laneName } from "./trace.js";

const SVG = "http://www.w3.org/2000/svg";
const ROW = { most: 9, least: 2, height: 400 };

function element(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** Height of a forward in pixels, so that `forwards` of them fit. */
const rowHeight = (forwards) =>
  Math.min(ROW.most, Math.max(ROW.least, ROW.height / Math.max(1, forwards)));

/** The role of the lane that ran at `offset`; drafts are beyond all lanes. */
const roleAt = (bars, offset) =>
  bars.find(({ start, len }) => offset >= start && offset < start + len)?.role ?? "generate";

/** Draws `rows`, the results of `Canvas.apply`; several charts may share `scale`. */
export function drawChart(rows, lanes, scale) {
  const paths = new Map();
  const box = (kind, x, y, width, height) => {
    paths.set(kind, `${paths.get(kind) ?? ""}M${x} ${y}h${width}v${height}h${-width}z`);
  };
  const spans = new Map();
  let y = 0;
  for (const row of rows) {
    for (const bar of row.bars) {
      box(`bar ${bar.role}`, bar.start, y, bar.len, row.height);
      const span = spans.get(bar.id);
      if (span) span.end = y + row.height;
      else spans.set(bar.id, { start: bar.start, top: y, end: y + row.height });
    }
    for (const { offset, state } of row.marks) {
      const kind = `mark ${state} ${roleAt(row.bars, offset)}`;
      box(kind, offset + 0.1, y + 0.12, 0.8, row.height - 0.24);
    }
    y += row.height;
  }
  const pixels = rowHeight(scale.forwards);
  const shapes = [...paths].sort().map(([kind, d]) => element("path", { class: kind, d }));
  const viewBox = `0 0 ${scale.positions} ${Math.max(1, y)}`;
  const grid = { viewBox, preserveAspectRatio: "none" };
  const labels = [...spans].map(([id, { start, top }]) => {
    const x = `${(100 * start) / scale.positions}%`;
    const label = { class: `label ${lanes[id].role}`, x, dx: 5, y: top * pixels + 10 };
    return element("text", label, laneName(lanes[id]));
  });
  const forks = [...spans].flatMap(([id, { start, top }]) => {
    const { role, parent } = lanes[id];
    if (role !== "generate" || lanes[parent]?.state !== "forked") return [];
    const cx = `${(100 * start) / scale.positions}%`;
    return [element("circle", { class: "fork", cx, cy: top * pixels, r: 3.5 })];
  });
  const size = { width: "100%", height: "100%" };
  const drawn = element("svg", { ...size, ...grid }, ...shapes);
  return element("svg", { width: "100%", height: Math.max(12, y * pixels) }, drawn, ...labels, ...forks);
}

/** The line below the shown forwards. */
export function cursor(rows, count, scale) {
  const before = rows.slice(0, count).reduce((sum, row) => sum + row.height, 0);
  const y = before * rowHeight(scale.forwards);
  return element("line", { class: "cursor", x1: 0, x2: "100%", y1: y, y2: y });
}
