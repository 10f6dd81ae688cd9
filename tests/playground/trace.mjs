// The page's handling of a trace, without a browser.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { pathToFileURL } from "node:url";

const folder = process.env.PLAYGROUND;
const load = (name) => import(pathToFileURL(`${folder}/${name}`));
const { Canvas, isCommitted, laneName } = await load("trace.js");

const lane = (id, role, parent, [start, len], clock, state) =>
  ({ id, role, parent, start, len, clock, state });
const step = (number, cells, lanes, canvas = 12) => ({
  step: number,
  kind: "decode",
  frontier: 0,
  canvas,
  skipped: 0,
  cells: cells.map(([offset, text, state]) => [offset, 7, text, 0.5, state]),
  lanes,
});

/** A canvas of 12 whose root forked at 4. */
function forked() {
  const canvas = new Canvas({ budget: 12 });
  canvas.apply(step(1, [[0, "a", "committed"]], [lane(0, "generate", null, [0, 6], 1, "active")]));
  const row = canvas.apply(
    step(2, [[5, "b", "committed"], [7, "c", "draft"]], [
      lane(0, "generate", null, [0, 6], 2, "forked"),
      lane(1, "refine", 0, [0, 4], 0, "active"),
      lane(2, "generate", 0, [4, 4], 0, "active"),
    ]),
  );
  return { canvas, row };
}

/** The positions in short: the lane's name where it begins, and the text or a mask. */
const drawn = (canvas) =>
  canvas.positions().map(({ cell, lane, first }) =>
    (first ? laneName(lane) + ":" : "") + (cell ? cell.text : "░") + (lane ? "" : "!"));

test("a forked lane's positions belong to its children", () => {
  const { canvas, row } = forked();
  assert.deepEqual(drawn(canvas), ["R1:a", "░", "░", "░", "G2:░", "b", "░", "c"]);
  // In the step of the fork the parent ran, at its previous place.
  assert.deepEqual(row.bars, [{ id: 0, role: "generate", start: 0, len: 6 }]);
  assert.deepEqual(row.marks, [{ offset: 5, state: "committed" }, { offset: 7, state: "draft" }]);
});

test("given tokens stand from the start and belong to no lane", () => {
  const canvas = new Canvas({ budget: 4, pins: [[2, 7, "c"], [3, 8, "d"]] });
  const shown = () => canvas.positions().map(({ cell }) => cell && `${cell.text} ${cell.state}`);
  assert.deepEqual(shown(), [null, null, "c given", "d given"]);
  canvas.apply(step(1, [[0, "a", "committed"]], [lane(0, "generate", null, [0, 4], 1, "active")], 4));
  assert.deepEqual(shown(), ["a committed", null, "c given", "d given"]);
  assert.equal(isCommitted(canvas.positions()[3].cell), true);
});

test("a position may become a mask again", () => {
  const { canvas } = forked();
  canvas.apply(step(3, [[7, "", "masked"]], []));
  assert.deepEqual(drawn(canvas), ["R1:a", "░", "░", "░", "G2:░", "b", "░", "░"]);
});

test("tokens ahead of all lanes show, and what is cut is gone", () => {
  const { canvas } = forked();
  canvas.apply(step(3, [[9, "d", "draft"]], []));
  assert.deepEqual(drawn(canvas).slice(7), ["c", "░!", "d!"]);
  canvas.apply(step(4, [[5, "end", "committed"]], [], 6));
  assert.deepEqual(drawn(canvas), ["R1:a", "░", "░", "░", "G2:░", "end"]);
});

test("tokens of a canvas of noise are kept or become noise, until they are committed", () => {
  const canvas = new Canvas({ budget: 4 });
  const shown = () => canvas.positions().map(({ cell }) => cell && `${cell.text} ${cell.state}`);
  const committed = () => canvas.positions().filter(({ cell }) => isCommitted(cell)).length;
  const root = lane(0, "generate", null, [0, 2], 1, "active");
  assert.deepEqual([shown(), committed()], [[], 0]);
  const row = canvas.apply(step(1, [[0, "a", "kept"], [1, "b", "renoised"]], [root], 4));
  assert.deepEqual(row.marks, [{ offset: 0, state: "kept" }, { offset: 1, state: "renoised" }]);
  assert.deepEqual([shown(), committed()], [["a kept", "b renoised"], 0]);
  canvas.apply(step(2, [[0, "c", "renoised"], [1, "b", "kept"]], [root], 4));
  assert.deepEqual([shown(), committed()], [["c renoised", "b kept"], 0]);
  canvas.apply(step(3, [[0, "d", "committed"], [1, "b", "committed"]], [root], 4));
  assert.deepEqual([shown(), committed()], [["d committed", "b committed"], 2]);
});

test("merged steps are as high as they are many", () => {
  const canvas = new Canvas({ budget: 12 });
  const merged = step(5, [], [lane(0, "generate", null, [0, 6], 5, "active")]);
  assert.equal(canvas.apply({ ...merged, skipped: 4 }).height, 5);
});

test("pieces of parts join to blocks", async () => {
  const { blocks, pretty, readTools } = await load("parts.js");
  const parts = [
    { type: "reasoning", text: "Lo" }, { type: "reasoning", text: "ng." }, { type: "text", text: "Hi" },
    { type: "call", index: 0, name: "add" }, { type: "arguments", index: 0, text: '{"a":' },
    { type: "arguments", index: 0, text: "1}" }, { type: "call", index: 1, name: "now" },
  ];
  const short = blocks(parts).map(({ type, name, text }) => [type, name ?? "", text]);
  assert.deepEqual(short, [["reasoning", "", "Long."], ["text", "", "Hi"], ["call", "add", '{"a":1}'],
    ["call", "now", ""]]);
  assert.equal(pretty('{"a":1}'), '{\n  "a": 1\n}');
  assert.equal(pretty('{"a":'), '{"a":');
  assert.equal(readTools(" "), undefined);
  assert.deepEqual(readTools("[1]"), [1]);
  for (const wrong of ["{}", "[", "null"]) assert.throws(() => readTools(wrong), /JSON list/);
});

test("a request for a terminal survives its quotes and tells no key", async () => {
  const { curl } = await load("api.js");
  const { execFileSync } = await import("node:child_process");
  const prompt = `it's "$HOME" \\ and\n'quotes'`;
  for (const hasKey of [false, true]) {
    const command = curl({ model: "m", prompt }, "http://127.0.0.1:1", hasKey);
    const shown = command.replace("curl -N", `printf '%s\\0'`);
    const env = { ...process.env, ASYNCLANE_API_KEY: "k" };
    const words = execFileSync("bash", ["-c", shown], { env }).toString().split("\0");
    assert.equal(words[0], "http://127.0.0.1:1/v1/completions");
    assert.equal(words.includes("authorization: Bearer k"), hasKey);
    const body = JSON.parse(words[words.indexOf("-d") + 1]);
    assert.deepEqual(body, { model: "m", prompt, stream: true });
  }
});

test("the parser of events is the one that its registry hands out", async () => {
  const ours = await readFile(`${folder}/eventsource-parser/index.js`, "utf8");
  const theirs = await readFile("node_modules/eventsource-parser/dist/index.js", "utf8");
  assert.equal(ours, theirs);
  const licence = await readFile("node_modules/eventsource-parser/LICENSE", "utf8");
  assert.equal(await readFile(`${folder}/eventsource-parser/LICENSE`, "utf8"), licence);
});
