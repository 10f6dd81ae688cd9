// The playground with a model trained on noise: a tiny DiffusionGemma checkpoint of random weights.

import assert from "node:assert/strict";
import { cp, readFile, writeFile } from "node:fs/promises";
import { after, before, test } from "node:test";

import { assertAccessible, close, ended, launch, offered, open } from "./page.mjs";
import { parsed, plain, serve } from "./served.mjs";

const TRACE = "/v1/diffusion/trace";
const folder = `${process.env.HOME}/noise`;

/** Copies the checkpoint and adds a tokenizer with a word per id. */
async function checkpoint() {
  await cp(process.env.CANVAS, folder, { recursive: true });
  const { text_config: sizes } = JSON.parse(await readFile(`${folder}/config.json`, "utf8"));
  const ids = Array.from({ length: sizes.vocab_size }, (_, id) => [`w${id}`, id]);
  const end = { id: 1, content: "w1", special: true, single_word: false, lstrip: false,
    rstrip: false, normalized: false };
  const tokenizer = {
    version: "1.0",
    added_tokens: [end],
    pre_tokenizer: { type: "WhitespaceSplit" },
    model: { type: "WordLevel", vocab: Object.fromEntries(ids), unk_token: "w6" },
  };
  await writeFile(`${folder}/tokenizer.json`, JSON.stringify(tokenizer));
  await writeFile(`${folder}/tokenizer_config.json`, JSON.stringify({ eos_token: "w1" }));
}

let server, browser;
before(async () => {
  await checkpoint();
  server = await serve("--model", folder);
  browser = await launch();
});
after(async () => {
  await browser?.close();
  assert.equal(await server?.stop(), 0, "the server ends in order");
});

test("a canvas shows what is kept and what becomes noise, step by step", async () => {
  const opened = await open(browser, server.url);
  const { page } = opened;
  await offered(page);
  await page.getByRole("radio", { name: "completion" }).check();
  await page.getByLabel("Prompt", { exact: true }).fill("w7 w8 w9");
  await page.getByLabel("budget").fill("16");
  await page.getByLabel("seed").fill("5");
  const told = page.waitForResponse((response) => response.url().endsWith(TRACE));
  await page.getByRole("button", { name: "Run" }).click();
  const body = (await told).request().postDataJSON();
  await ended(page);
  await assertAccessible(page, "canvases of noise");
  const steps = parsed(await (await told).text()).filter(([name]) => name === "step");
  assert.ok(steps.length > 2, `${steps.length} steps`);

  const panel = page.getByRole("region", { name: "Decoder A" });
  const drawn = () => panel.locator(".cells .cell").evaluateAll((cells) =>
    cells.map(({ textContent, classList }) => [textContent, classList[1]]));
  const slider = panel.getByRole("slider", { name: "step" });
  await slider.focus();
  await page.keyboard.press("Home");
  const cells = [];
  const seen = new Set();
  for (const [number, [, { cells: changed, canvas }]] of steps.entries()) {
    await page.keyboard.press("ArrowRight");
    for (const [offset, , text, , state] of changed) cells[offset] = [text, state];
    cells.length = Math.min(cells.length, canvas);
    const shown = await drawn();
    for (const [offset, [text, state]] of cells.entries()) {
      assert.deepEqual(shown[offset], [text, state], `step ${number}, position ${offset}`);
      seen.add(state);
    }
    const committed = cells.filter(([, state]) => state === "committed").length;
    const label = await panel.locator(".cells").getAttribute("aria-label");
    assert.equal(label, `${committed} of ${shown.length} positions committed`);
    if (seen.size === 2 && committed === 0) {
      await page.screenshot({ path: `${process.env.SCREENSHOTS}/noise.png`, fullPage: true });
    }
  }
  assert.deepEqual([...seen].sort(), ["committed", "kept", "renoised"]);
  const api = await plain(server.url, body);
  const answer = await panel.locator(".answer").evaluate((element) => element.textContent);
  assert.equal(answer, api.text);
  await close(opened);
});
