// The playground in a real browser, with the real server and the demo model.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { after, before, test } from "node:test";

import { assertAccessible, assertFits, close, ended, launch, offered, open } from "./page.mjs";
import { REBOUND } from "./page.mjs";
import { events, plain, post, serve } from "./served.mjs";

const SUM =
  "Mia has 12 eggs. Then she buys 5 more eggs. Next she loses 4 eggs. " +
  "How many eggs does Mia have now?";
const TRACE = "/v1/diffusion/trace";
const PHONE = { width: 375, height: 740 };
const folder = process.env.SCREENSHOTS;

let server, browser;
before(async () => {
  server = await serve();
  browser = await launch();
});
after(async () => {
  await browser?.close();
  assert.equal(await server?.stop(), 0, "the server ends in order");
});

const shot = (page, name) => page.screenshot({ path: `${folder}/${name}.png`, fullPage: true });
const answerOf = (panel) => panel.locator(".answer").evaluate((answer) => answer.textContent);
const panelOf = (page, name) => page.getByRole("region", { name: `Decoder ${name}` });
const picker = (page, name) => page.getByRole("group", { name: `Decoder ${name}` });
const setting = (page, name, field) => picker(page, name).locator(`[name=${field}]`);

/** The page with `SUM` typed into it. */
async function asked(options) {
  const opened = await open(browser, server.url, options);
  await offered(opened.page);
  await opened.page.getByLabel("Prompt", { exact: true }).fill(SUM);
  return opened;
}

/** The bodies of the traces that a page asks for from now on. */
function bodies(page) {
  const bodies = [];
  page.on("request", (request) => {
    if (request.url().endsWith(TRACE)) bodies.push(request.postDataJSON());
  });
  return bodies;
}

/** The cells as they must be after `trace`, worked out from its events alone. */
function expectedCells(trace) {
  const cells = new Map();
  let canvas = 0;
  for (const [name, data] of trace) {
    if (name !== "step") continue;
    for (const [offset, , text, , state] of data.cells) cells.set(offset, { text, state });
    canvas = data.canvas;
  }
  return [...cells].sort(([a], [b]) => a - b).filter(([offset]) => offset < canvas);
}

const drawnCells = (panel) =>
  panel.locator(".cells .cell").evaluateAll((cells) =>
    cells.map((cell) => ({ text: cell.textContent, kinds: [...cell.classList] })));

test("an answer streams in, its canvas fills, and both are the API's", async () => {
  const opened = await asked();
  const { page } = opened;
  const sent = bodies(page);
  const panel = panelOf(page, "A");
  // Every text that the answer had.
  await panel.locator(".answer").evaluate((answer) => {
    window.texts = [];
    const seen = (changes) => window.texts.push(...changes.map((change) => change.oldValue));
    new MutationObserver(seen).observe(answer, { characterDataOldValue: true, subtree: true });
  });
  await setting(page, "A", "preset").selectOption("vanilla");
  await page.getByRole("button", { name: "Run" }).click();
  await ended(page);
  const changes = await page.evaluate(() => window.texts);
  // The answer of the first view was cleared first.
  const texts = [...new Set(changes.slice(changes.indexOf("")))];
  const text = await answerOf(panel);
  assert.ok(texts.length > 3, `${texts.length} texts`);
  for (const earlier of texts) assert.ok(text.startsWith(earlier), earlier);

  assert.equal(sent.length, 1);
  assert.deepEqual(sent[0].messages, [{ role: "user", content: SUM }]);
  assert.deepEqual(sent[0].diffusion, { preset: "vanilla" });
  const api = await plain(server.url, sent[0]);
  assert.equal(text, api.text);
  assert.match(text, /#### [\d.]+$/);

  const trace = await events(server.url, sent[0]);
  const cells = await drawnCells(panel);
  const expected = expectedCells(trace);
  assert.equal(cells.length, expected.length);
  for (const [index, [offset, { text, state }]] of expected.entries()) {
    assert.equal(offset, index, "the canvas is full");
    assert.ok(cells[index].kinds.includes(state), `${offset}: ${cells[index].kinds}`);
    assert.ok(["committed", "draft"].includes(state));
    if (!text.includes("\n") && !text.startsWith("<|")) assert.equal(cells[index].text, text);
  }
  const label = await panel.locator(".cells").getAttribute("aria-label");
  assert.equal(label, `${cells.length} of ${cells.length} positions committed`);

  const told = (name) => panel.locator(`[data-count=${name}]`).textContent();
  assert.equal(await told("tokens"), String(api.usage.completion_tokens));
  assert.equal(await told("forwards"), String(api.usage.diffusion.forwards));
  assert.equal(await told("tpf"), api.usage.diffusion.tokens_per_forward.toFixed(1));
  assert.ok(Number(await told("tps")) > 0);
  assert.equal(await panel.locator(".answer").getAttribute("aria-busy"), "false");
  assert.equal(await panel.locator(".answer").getAttribute("aria-live"), "polite");
  await close(opened);
});

test("calls show as blocks with their arguments", async () => {
  const opened = await asked();
  const { page } = opened;
  const sent = bodies(page);
  const number = { type: "integer", minimum: 0, maximum: 99 };
  const parameters = { type: "object", properties: { a: number, b: number }, required: ["a", "b"] };
  const tools = [{ type: "function", function: { name: "add", parameters } }];
  await page.getByText("functions (chat)").click();
  await page.getByLabel("Functions").fill("{");
  await page.getByRole("button", { name: "Run" }).click();
  await page.getByText("Functions must be a JSON list of tools.").waitFor();
  await page.getByLabel("Functions").fill(JSON.stringify(tools));
  await page.getByLabel("the answer must call one").check();
  await page.getByRole("button", { name: "Run" }).click();
  await ended(page);
  await assertAccessible(page, "a call");
  assert.equal(sent.length, 1);
  assert.deepEqual([sent[0].tools, sent[0].tool_choice], [tools, "required"]);
  const { choices } = JSON.parse(await post(server.url, "/v1/chat/completions", sent[0]));
  const expected = choices[0].message.tool_calls.map((call) => call.function);
  assert.ok(expected.length > 0);
  const calls = panelOf(page, "A").locator(".part.call");
  assert.deepEqual(await calls.locator("code").allTextContents(), expected.map(({ name }) => name));
  const shown = await calls.locator("pre").allTextContents();
  for (const [index, text] of shown.entries()) {
    const given = JSON.parse(expected[index].arguments);
    assert.equal(text, JSON.stringify(given, null, 2));
  }
  await close(opened);
});

test("lanes show as bands, as a tree, and step by step", async () => {
  const opened = await asked();
  const { page } = opened;
  const sent = bodies(page);
  const panel = panelOf(page, "A");
  await setting(page, "A", "preset").selectOption("balanced");
  await page.getByRole("button", { name: "Run" }).click();
  await ended(page);
  await assertAccessible(page, "an answer, light");
  await shot(page, "light");

  const usage = (await plain(server.url, sent[0])).usage.diffusion;
  assert.ok(usage.forks > 0, "the example forks");
  const lanes = panel.getByRole("list", { name: "Lane tree" }).getByRole("listitem");
  assert.equal(await lanes.count(), usage.lanes);
  const names = await lanes.locator("> .badge").allTextContents();
  assert.ok(names.some((name) => /^R\d/.test(name)), `${names}`);
  assert.equal(names[0], "G0");
  const forked = lanes.filter({ hasText: "forked at" });
  assert.ok((await forked.count()) >= usage.forks);
  assert.ok((await panel.locator(".cells [data-lane]").count()) > 1);
  assert.ok((await panel.locator(".chart .fork").count()) > 0);

  // Back to the start, then forward again by keyboard.
  const full = await answerOf(panel);
  const slider = panel.getByRole("slider", { name: "step" });
  await slider.focus();
  await page.keyboard.press("Home");
  assert.equal(await answerOf(panel), "");
  assert.equal(await panel.locator(".cells .committed").count(), 0);
  await page.keyboard.press("ArrowRight");
  assert.ok((await panel.locator(".cells .committed").count()) > 0);
  assert.ok((await panel.locator(".cells .masked").count()) > 0);
  await shot(page, "step");
  await page.keyboard.press("End");
  assert.equal(await answerOf(panel), full);
  assert.equal(await panel.locator(".cells .masked").count(), 0);

  await panel.getByRole("button", { name: "Replay" }).click();
  await panel.getByRole("button", { name: "Pause" }).waitFor();
  await panel.getByRole("button", { name: "Replay" }).waitFor();
  assert.equal(await answerOf(panel), full);
  await close(opened);
});

test("the picture of the README is an answer to the first example", async () => {
  const viewport = { width: 1200, height: 692 };
  const opened = await open(browser, server.url, { viewport, deviceScaleFactor: 1.5 });
  const { page } = opened;
  await offered(page);
  await ended(page);
  assert.match(await answerOf(panelOf(page, "A")), /#### 18\.5$/);
  const lanes = await panelOf(page, "A").getByRole("list", { name: "Lane tree" }).textContent();
  assert.match(lanes, /refine \[\d+, \d+\) finished, [1-9]/, "a refine lane works");
  await page.screenshot({ path: `${folder}/playground.png` });
  await close(opened);
});

test("the first view is right on screens and phones, light and dark", async () => {
  for (const [width, height] of [[1400, 900], [390, 844]]) {
    for (const colorScheme of ["light", "dark"]) {
      const opened = await open(browser, server.url, { viewport: { width, height }, colorScheme });
      const { page } = opened;
      await offered(page);
      await ended(page);
      await assertFits(page, `${width} pixels`);
      await assertAccessible(page, `${width} pixels, ${colorScheme}`);
      await shot(page, `first-${width}-${colorScheme}`);
      await close(opened);
    }
  }
});

test("a race ends with both answers of the API", async () => {
  const opened = await asked({ colorScheme: "dark" });
  const { page } = opened;
  const sent = bodies(page);
  await page.getByLabel("race against a second decoder").check();
  await setting(page, "B", "preset").selectOption("fast_dllm_dual");
  await page.getByRole("button", { name: "Race" }).click();
  await ended(page);
  await assertAccessible(page, "a race, dark");
  await shot(page, "race");
  assert.equal(sent.length, 2);
  for (const name of ["A", "B"]) {
    const preset = name === "B" ? "fast_dllm_dual" : undefined;
    const body = sent.find(({ diffusion }) => diffusion?.preset === preset);
    const api = await plain(server.url, body);
    assert.equal(await answerOf(panelOf(page, name)), api.text, name);
  }
  const status = await page.getByRole("status").textContent();
  assert.match(status, /Decoder A: \d+ tokens.*Decoder B: \d+ tokens/);
  assert.match(status, /took [\d.]+ times fewer forwards and .* than Decoder [AB]: (the same|another) text\.$/);
  const saved = page.waitForEvent("download");
  await page.getByRole("button", { name: "Save PNG" }).click();
  const file = await (await saved).path();
  assert.equal((await readFile(file)).subarray(1, 4).toString(), "PNG");
  await writeFile(`${folder}/race-saved.png`, await readFile(file));

  // The link fills the form and runs it again.
  await page.getByRole("button", { name: "Copy link" }).click();
  const again = await open(browser, page.url());
  await offered(again.page);
  await ended(again.page);
  for (const name of ["A", "B"]) {
    assert.equal(await answerOf(panelOf(again.page, name)), await answerOf(panelOf(page, name)));
  }
  await close(again);
  await close(opened);
});

test("everything can be done with the keyboard, and focus shows", async () => {
  const opened = await open(browser, server.url);
  const { page } = opened;
  await offered(page);
  const sent = bodies(page);
  const focused = () =>
    page.evaluate(() => {
      const { outlineStyle, outlineWidth } = getComputedStyle(document.activeElement);
      const { id, name, className, textContent } = document.activeElement;
      const shows = outlineStyle !== "none" && parseFloat(outlineWidth) >= 2;
      return { shows, what: id || name || className || textContent };
    });
  const reached = [];
  const tabTo = async (what) => {
    for (let tries = 0; tries < 30; tries += 1) {
      await page.keyboard.press("Tab");
      const at = await focused();
      reached.push(at.what);
      assert.ok(at.shows, `focus does not show on ${at.what}`);
      if (at.what === what) return;
    }
    assert.fail(`${what} is out of reach: ${reached}`);
  };
  await tabTo("prompt");
  await page.keyboard.press("Control+A");
  await page.keyboard.type("Reverse the list coins, eggs, books.");
  await tabTo("budget");
  await page.keyboard.press("Control+A");
  await page.keyboard.type("64");
  await tabTo("temperature");
  await page.keyboard.type("0");
  await tabTo("seed");
  await page.keyboard.type("5");
  await tabTo("preset");
  await page.keyboard.type("fast");
  await tabTo("race");
  await tabTo("run");
  await page.keyboard.press("Enter");
  await ended(page);
  const { seed, temperature, max_tokens, diffusion } = sent[0];
  assert.deepEqual({ seed, temperature, max_tokens, diffusion },
    { seed: 5, temperature: 0, max_tokens: 64, diffusion: { preset: "fast" } });
  assert.equal(await answerOf(panelOf(page, "A")), (await plain(server.url, sent[0])).text);
  for (const place of ["copy", "replay"]) await tabTo(place);

  await page.getByLabel("Prompt", { exact: true }).focus();
  // Wait for the request: a short answer may have ended already.
  const again = page.waitForEvent("request", (request) => request.url().endsWith(TRACE));
  await page.keyboard.press("Control+Enter");
  await again;
  await ended(page);
  assert.equal(sent.length, 2);
  await close(opened);
});

test("a stream can be stopped, and the server stops with it", async () => {
  const opened = await asked({ colorScheme: "dark" });
  const { page } = opened;
  const panel = panelOf(page, "A");
  // Hundreds of forward passes over the whole canvas.
  await page.getByLabel("budget").fill("900");
  await setting(page, "A", "preset").selectOption("fast_dllm_dual_published");
  await picker(page, "A").getByText("other settings").click();
  await setting(page, "A", "commit").selectOption("top_k");
  await setting(page, "A", "cache").selectOption("none");
  await page.getByRole("button", { name: "Run" }).click();
  await page.waitForFunction(() => document.querySelectorAll(".cells .committed").length > 10);
  await shot(page, "streaming");
  assert.equal(await panel.getAttribute("data-state"), "running");
  await page.getByRole("button", { name: "Stop" }).click();
  await ended(page);
  assert.equal(await panel.getAttribute("data-state"), "stopped");
  assert.equal(await page.getByRole("status").textContent(), "Decoder A was stopped.");
  await page.waitForFunction(async () => (await (await fetch("/load")).json()).server_load === 0);
  await assertAccessible(page, "stopped, dark");
  await close(opened);
});

test("what the API refuses is shown with its field", async () => {
  const opened = await asked();
  const { page } = opened;
  const panel = panelOf(page, "A");
  const shownCounts = async () =>
    [...(await panel.locator("[data-count]").allTextContents()),
      await panel.locator(".position").textContent()];
  const before = ["–", "–", "–", "–", "0 / 0"];
  // An answer whose counts a failed run must not keep.
  await page.getByLabel("budget").fill("1");
  await page.getByRole("button", { name: "Run" }).click();
  await ended(page);
  assert.notDeepEqual(await shownCounts(), before);
  assert.match(await page.getByRole("status").textContent(), /: 1 token, 1 forward, /);
  await page.getByLabel("budget").fill("64");
  await setting(page, "A", "preset").selectOption("balanced");
  await picker(page, "A").getByText("other settings").click();
  await setting(page, "A", "entropy_threshold").fill("-1");
  const sent = bodies(page);
  await page.getByRole("button", { name: "Run" }).click();
  await ended(page);
  const answer = await fetch(`${server.url}${TRACE}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(sent[0]),
  });
  assert.equal(answer.status, 400);
  const { message, param } = (await answer.json()).error;
  assert.equal(param, "diffusion.entropy_threshold");
  const shown = await page.getByRole("alert").textContent();
  assert.equal(shown, message);
  assert.equal(shown.split(param).length, 2, "the field is named once");
  await assertAccessible(page, "an error");
  assert.deepEqual(await shownCounts(), before);
  // The next answer removes the message.
  await setting(page, "A", "entropy_threshold").fill("0.1");
  await page.getByRole("button", { name: "Run" }).click();
  await page.waitForFunction(() => document.querySelector(".panel").dataset.state === "done");
  assert.equal(await page.getByRole("alert").count(), 0);
  await close(opened, ["the server responded with a status of 400"]);
});

test("a phone needs no sideways scrolling", async () => {
  const opened = await asked({ viewport: PHONE, hasTouch: true, isMobile: true });
  const { page } = opened;
  await assertFits(page, "before");
  await setting(page, "A", "preset").selectOption("balanced");
  await page.getByLabel("race against a second decoder").check();
  for (const details of await page.getByText("other settings").all()) await details.click();
  await page.getByRole("button", { name: "Race" }).click();
  await ended(page);
  await assertFits(page, "after a race");
  await assertAccessible(page, "a phone");
  await setting(page, "A", "block_length").fill("0");
  await page.getByLabel("race against a second decoder").uncheck();
  await page.getByRole("button", { name: "Run" }).click();
  await ended(page);
  await assertFits(page, "after a refusal");
  await setting(page, "A", "block_length").fill("");
  await page.getByText("other settings").first().click();
  await page.evaluate(() => scrollTo(0, 0));
  await page.getByRole("button", { name: "Run" }).click();
  await page.waitForFunction(() => document.querySelector(".panel").dataset.state === "done");
  await ended(page);
  // The answer came into view by itself.
  await page.waitForFunction(() => {
    const { top, bottom } = document.querySelector(".answer").getBoundingClientRect();
    return top >= 0 && bottom <= innerHeight;
  });
  await shot(page, "phone");
  await close(opened, ["the server responded with a status of 400"]);
});

test("the request runs in a shell as well", async () => {
  const opened = await asked();
  const { page, context } = opened;
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  await page.getByRole("button", { name: "Run" }).click();
  await ended(page);
  await page.getByRole("button", { name: "Copy as curl" }).click();
  await page.getByRole("button", { name: "Copied" }).waitFor();
  const command = await page.evaluate(() => navigator.clipboard.readText());
  const file = "command.sh";
  await writeFile(file, command);
  const stream = execFileSync("bash", [file], { stdio: ["ignore", "pipe", "ignore"] }).toString();
  const chunks = [...stream.matchAll(/^data: (\{.*)$/gm)].map(([, data]) => JSON.parse(data));
  const text = chunks.map(({ choices }) => choices[0]?.delta.content ?? "").join("");
  assert.equal(text, await answerOf(panelOf(page, "A")));
  await close(opened);
});

test("the header tells the model, and the legend what it can show", async () => {
  const opened = await open(browser, server.url);
  const { page } = opened;
  await offered(page);
  assert.match(await page.locator("#model").textContent(), /^demo · 3\.0M parameters · cpu · 1024 positions$/);
  await page.getByText("A small test model").waitFor();
  assert.equal(await page.getByLabel("API key").isVisible(), false);
  assert.equal(await page.locator(".legend .renoised").isVisible(), false);
  assert.equal(await page.locator(".legend .fork").isVisible(), true);
  // The first view is an answer.
  assert.equal(await panelOf(page, "A").getAttribute("data-state"), "done");
  await close(opened);
});

test("turns, a system prompt and a format are sent, and a lost server is told in words", async () => {
  const opened = await asked();
  const { page } = opened;
  const sent = bodies(page);
  await page.getByText("system prompt, turns, suffix").click();
  await page.getByLabel("System prompt").fill("Be brief.");
  await page.getByLabel("keep the turns").check();
  for (let turn = 0; turn < 2; turn += 1) {
    await page.getByRole("button", { name: "Run" }).click();
    await ended(page);
  }
  assert.deepEqual(sent.map(({ messages }) => messages.map(({ role }) => role).join()),
    ["system,user", "system,user,assistant,user"]);
  // A turn that fails leaves those before it.
  await page.route(`**${TRACE}`, (route) => route.abort());
  await page.getByRole("button", { name: "Run" }).click();
  await page.getByText("The server cannot be reached.").waitFor();
  await page.unroute(`**${TRACE}`);
  await page.getByRole("button", { name: "Run" }).click();
  await ended(page);
  assert.equal(sent.at(-1).messages.length, 6);
  await page.getByText("JSON schema or regular expression").click();
  await page.getByLabel("Format").fill("[0-9]{2}");
  await page.getByRole("button", { name: "Run" }).click();
  await ended(page);
  assert.match(await answerOf(panelOf(page, "A")), /^[0-9]{2}$/);
  await page.getByLabel("Format").fill("{");
  await page.getByRole("button", { name: "Run" }).click();
  await page.getByText("The format must be a JSON schema or a regular expression.").waitFor();
  await page.getByLabel("Format").fill("");
  await page.getByText("functions (chat)").click();
  await page.getByRole("button", { name: "example", exact: true }).click();
  await page.getByRole("button", { name: "Run" }).click();
  await ended(page);
  assert.equal(sent.at(-1).tools[0].function.name, "add");
  await page.getByLabel("completion").check();
  await page.getByLabel("Suffix").fill(" The end.");
  await page.route(`**${TRACE}`, (route) => route.abort());
  await page.getByRole("button", { name: "Run" }).click();
  await page.getByText("The server cannot be reached.").waitFor();
  assert.equal(sent.at(-1).suffix, " The end.");
  await assertAccessible(page, "a lost server");
  await close(opened, ["net::ERR_FAILED"]);
});

test("a raw completion is asked for as one", async () => {
  const opened = await asked();
  const { page } = opened;
  const sent = bodies(page);
  await page.getByLabel("completion").check();
  await page.getByLabel("budget").fill("24");
  await page.getByRole("button", { name: "Run" }).click();
  await ended(page);
  assert.equal(sent[0].prompt, SUM);
  assert.equal(sent[0].messages, undefined);
  assert.equal(await answerOf(panelOf(page, "A")), (await plain(server.url, sent[0])).text);
  await close(opened);
});

test("a key is asked for, used, and kept nowhere", async () => {
  const file = "keys.txt";
  await writeFile(file, "team:a secret\n");
  const keyed = await serve("--api-keys-file", file);
  try {
    const opened = await open(browser, keyed.url);
    const { page, context } = opened;
    await page.getByText("This server needs an API key.").waitFor();
    assert.equal(await page.getByLabel("API key").isVisible(), true);
    await page.getByLabel("API key").fill("a secret");
    await page.keyboard.press("Tab");
    await offered(page);
    await page.getByRole("button", { name: "Run" }).click();
    await ended(page);
    assert.match(await answerOf(panelOf(page, "A")), /#### [\d.]+$/);
    await context.grantPermissions(["clipboard-read", "clipboard-write"]);
    await page.getByRole("button", { name: "Copy as curl" }).click();
    await page.getByRole("button", { name: "Copied" }).waitFor();
    const command = await page.evaluate(() => navigator.clipboard.readText());
    assert.ok(command.includes("Bearer $ASYNCLANE_API_KEY"), command);
    assert.ok(!command.includes("a secret"), command);
    const { cookies, origins } = await context.storageState();
    assert.deepEqual([cookies, origins], [[], []]);
    await page.reload();
    await page.getByText("This server needs an API key.").waitFor();
    await close(opened, ["the server responded with a status of 401"]);
  } finally {
    await keyed.stop();
  }
});

test("light and dark are two, and motion is reduced where asked", async () => {
  const seen = [];
  for (const colorScheme of ["light", "dark"]) {
    const opened = await open(browser, server.url, { colorScheme, reducedMotion: "reduce" });
    const { page } = opened;
    await offered(page);
    await page.getByLabel("race against a second decoder").check();
    await assertAccessible(page, `before, ${colorScheme}`);
    seen.push(await page.evaluate(() => getComputedStyle(document.body).backgroundColor));
    if (colorScheme === "dark") {
      await page.getByRole("button", { name: "Race" }).click();
      await ended(page);
      await shot(page, "dark");
    }
    const moving = await page.evaluate(() =>
      [...document.querySelectorAll("*")].filter((element) => {
        const { transitionDuration, animationName } = getComputedStyle(element);
        return transitionDuration !== "0s" || animationName !== "none";
      }).length);
    assert.equal(moving, 0);
    await close(opened);
  }
  assert.notEqual(seen[0], seen[1]);
});

test("pages from elsewhere get nothing, by whatever name they come", async () => {
  const { port } = new URL(server.url);
  const context = await browser.newContext();
  const page = await context.newPage();
  const rebound = await page.goto(`http://${REBOUND}:${port}/v1/models`);
  assert.equal(rebound.status(), 403);
  assert.equal((await rebound.json()).error.code, "forbidden");

  const other = createServer((_, answer) => answer.end("<title>another page</title>"));
  await new Promise((resolve) => other.listen(0, "127.0.0.1", resolve));
  try {
    await page.goto(`http://127.0.0.1:${other.address().port}/`);
    const answer = page.waitForResponse((response) => response.url().includes("/v1/completions"));
    // A body without a type is sent without a preflight request.
    await page.evaluate((url) => {
      const body = new Blob(['{"model": "demo", "prompt": "Hi", "max_tokens": 1}']);
      return fetch(`${url}/v1/completions`, { method: "POST", mode: "no-cors", body });
    }, server.url);
    assert.equal((await answer).status(), 403);
  } finally {
    other.close();
    await context.close();
  }
});
