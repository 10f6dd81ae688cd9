// A race after its end: the verdict, and a picture to save.

const BAR = { generate: "#dfebfa", refine: "#fbe9cb" };
const MARK = { generate: "#1f63b0", refine: "#a05a00" };
const WIDTH = 620;
const LINE = 18;
const CHART = 260;

/** `3.1 times fewer forwards`; equal counts are told as such. */
function compared(first, second, fewer, equal) {
  if (first === second) return equal;
  return `${(Math.max(first, second) / Math.min(first, second)).toFixed(1)} times ${fewer}`;
}

/** One line about two finished answers: {name, forwards, seconds, text}. */
export function verdict(first, second) {
  const [winner, other] = first.forwards <= second.forwards ? [first, second] : [second, first];
  const passes = compared(winner.forwards, other.forwards, "fewer forwards", "as many forwards");
  const faster = winner.seconds <= other.seconds ? "less time" : "more time";
  const time = compared(winner.seconds, other.seconds, faster, "the same time");
  const text = first.text === second.text ? "the same text" : "another text";
  return `${winner.name} took ${passes} and ${time} than ${other.name}: ${text}.`;
}

/** The words of `text` in lines of at most `width` pixels. */
function wrapped(context, text, width) {
  const lines = [];
  for (const paragraph of text.split("\n")) {
    let line = "";
    for (const word of paragraph.split(" ")) {
      const longer = line ? `${line} ${word}` : word;
      if (line && context.measureText(longer).width > width) {
        lines.push(line);
        line = word;
      } else line = longer;
    }
    lines.push(line);
  }
  return lines;
}

/** Height of a forward pass in pixels. */
const pass = (scale) => Math.min(9, CHART / Math.max(1, scale.forwards));

function drawChart(context, { rows, scale }, top) {
  const across = WIDTH / Math.max(1, scale.positions);
  const down = pass(scale);
  let y = top;
  for (const { bars, marks, height } of rows) {
    for (const { role, start, len } of bars) {
      context.fillStyle = BAR[role];
      context.fillRect(start * across, y, len * across, height * down);
    }
    for (const { offset } of marks) {
      const bar = bars.find(({ start, len }) => offset >= start && offset < start + len);
      context.fillStyle = MARK[bar?.role ?? "generate"];
      context.fillRect(offset * across, y, Math.max(1, across * 0.8), Math.max(1, height * down * 0.8));
    }
    y += height * down;
  }
}

/** A canvas with the answers beside each other, `heading` and `line` above them. */
export function picture(panels, heading, line) {
  const canvas = document.createElement("canvas");
  const context = canvas.getContext("2d");
  const font = "13px sans-serif";
  context.font = font;
  const told = panels.map(({ text }) => wrapped(context, text, WIDTH));
  const most = Math.max(...told.map((lines) => lines.length));
  canvas.width = panels.length * (WIDTH + 20) + 20;
  const tallest = Math.max(...panels.map(({ scale }) => scale.forwards * pass(scale)));
  canvas.height = 110 + most * LINE + tallest + 20;
  context.fillStyle = "#ffffff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  const write = (text, x, y, weight = "") => {
    context.font = `${weight} ${font}`;
    context.fillStyle = "#1b2026";
    context.fillText(text, x, y);
  };
  write(heading, 20, 26, "bold");
  write(line, 20, 26 + LINE);
  for (const [index, panel] of panels.entries()) {
    context.save();
    context.translate(20 + index * (WIDTH + 20), 0);
    write(panel.title, 0, 72, "bold");
    write(panel.counts.join("   "), 0, 72 + LINE);
    for (const [number, text] of told[index].entries()) write(text, 0, 116 + number * LINE);
    drawChart(context, panel, 110 + most * LINE);
    context.restore();
  }
  return canvas;
}

/** Lets the browser save `canvas` as a PNG file. */
export async function save(canvas, name) {
  const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  const link = Object.assign(document.createElement("a"), { download: name });
  link.href = URL.createObjectURL(blob);
  link.click();
  URL.revokeObjectURL(link.href);
}
