// The page: one form, one panel per answer; a race has two.

import { curl, servedModel, trace } from "./api.js";
import { Questions, run as runDecision } from "./decide.js";
import { DecoderPicker } from "./decoder.js";
import { EXAMPLE_TOOLS, fromFragment, mode, request, toFragment } from "./form.js";
import { Panel } from "./panel.js";
import { picture, save, verdict } from "./race.js";
import { count } from "./trace.js";

/** Pause between requests to a server that is loading, in milliseconds. */
const AGAIN = 1000;
const BUDGET = 256;
/** Longest replay of a race, and of one of its steps, in milliseconds. */
const REPLAY = { all: 6000, step: 220 };
const TOY = "A small test model: it answers questions in the wording of the examples.";
const UNTRAINED = "A small test model that was not trained to decide: its probabilities are near chance.";
/** Prompts in the wording of the demo model's training data. */
const DEMO = {
  sum: "Mia has 15.5 dollars. Then she loses 5 dollars. Next she finds 1 more dollars. After that " +
    "she gets 7 more dollars. How many dollars does Mia have now?",
  "longer sum": "Ana has 14 eggs. Then she buys 5 more eggs. Next she loses 4 eggs. After that " +
    "she finds 9 more eggs. How many eggs does Ana have now?",
  function: 'Complete the function.\ndef solve(a, b):\n    """Start with a, then multiply by 3, ' +
    'then subtract b and return it."""\n',
  list: "Reverse the list coins, eggs, books, pens.",
};
const OTHER = { story: "Write three short sentences about the sea." };

const at = (id) => document.getElementById(id);
const titles = ["Decoder A", "Decoder B"];
const pickers = titles.map((title) => new DecoderPicker(at("decoder"), title));
const panels = titles.map((title) => new Panel(at("panel"), title));
const questions = new Questions(at("questions"), at("add"));
const decided = document.createElement("section");
decided.className = "panel";
let model = null;
let running = null;
/** The messages of a chat whose turns are kept. */
let turns = [];

at("first").append(pickers[0].element);
at("second").append(pickers[1].element);

function say(text) {
  at("status").textContent = text;
}

/** A number of weights, as `3.0M`. */
function size(number) {
  const [unit, letter] = number >= 1e9 ? [1e9, "B"] : [1e6, "M"];
  return `${(number / unit).toFixed(1)}${letter}`;
}

/** Fills the pickers with the server's presets and settings; waits until the model is loaded. */
async function load() {
  try {
    model = await servedModel(at("key").value);
  } catch (error) {
    const isLocked = error.status === 401;
    if (isLocked) at("keyed").hidden = false;
    say(isLocked ? "This server needs an API key." : error.message);
    if (error.code === "loading") setTimeout(load, AGAIN);
    return;
  }
  const facts = [model.id, `${size(model.parameters)} parameters`, model.device];
  at("model").textContent = [...facts, `${model.max_model_len} positions`].join(" · ");
  const budget = at("budget");
  budget.max = model.max_model_len;
  // The rest of a short context is for the prompt.
  budget.value = Math.min(BUDGET, Math.ceil(model.max_model_len / 2));
  explain(Object.keys(model.diffusion.presets));
  const linked = fromFragment(location.hash);
  const plain = model.diffusion.presets.vanilla ? "vanilla" : "autoregressive";
  pickers[0].offer(model.diffusion, "");
  pickers[1].offer(model.diffusion, plain);
  for (const [index, settings] of (linked ?? []).slice(0, 2).entries()) pickers[index].take(settings);
  offerExamples(model.demo ? DEMO : OTHER);
  show();
  say("");
  // A demo answers at once; other models work when they are told to.
  if (linked || model.demo) await run();
  document.body.dataset.ready = "";
}

/** Keeps of the legend what a model with these presets can show. */
function explain(presets) {
  const has = {
    noise: presets.includes("canvas"),
    masks: !presets.includes("canvas"),
    edits: presets.includes("editing"),
  };
  for (const part of document.querySelectorAll("[data-for]")) part.hidden = !has[part.dataset.for];
}

/** Shows the controls of the chosen mode. */
function show() {
  const decides = mode() === "decide";
  at("about").textContent = !model?.demo ? "" : decides ? UNTRAINED : TOY;
  at("decision").hidden = !decides;
  for (const part of document.querySelectorAll(".answered")) part.hidden = decides;
  at("second").hidden = decides || !at("race").checked;
  at("run").textContent = !decides && at("race").checked ? "Race" : "Run";
}

function offerExamples(examples) {
  const prompt = at("prompt");
  prompt.value ||= Object.values(examples)[0];
  const buttons = Object.entries(examples).map(([name, text]) => {
    const button = document.createElement("button");
    Object.assign(button, { type: "button", textContent: name });
    button.addEventListener("click", () => {
      prompt.value = text;
      prompt.focus();
    });
    return button;
  });
  at("examples").replaceChildren(...buttons);
}

/** Seconds of the last answers. */
const times = [0, 0];

/** Requests the answer to `body`; returns its status text. */
async function answer(index, body, signal) {
  const panel = panels[index];
  const key = at("key").value;
  panel.begin(pickers[index].name, curl(body, location.origin, key !== ""));
  let usage = null;
  const done = (event) => {
    usage = event.usage;
    panel.events.done(event);
  };
  try {
    await trace(body, key, signal, { ...panel.events, done });
  } catch (error) {
    if (signal.aborted) {
      panel.end("stopped");
      return `${titles[index]} was stopped.`;
    }
    panel.end("failed", error);
    return `${titles[index]} failed.`;
  }
  const seconds = panel.seconds.toFixed(2);
  panel.end("done");
  const { completion_tokens: tokens, diffusion } = usage;
  const cost = `${count(tokens, "token")}, ${count(diffusion.forwards, "forward")}`;
  times[index] = Number(seconds);
  return `${titles[index]}: ${cost}, ${seconds} s.`;
}

/** Gives charts beside each other the same scale. */
function share(shown) {
  const most = (name) => Math.max(...shown.map((panel) => panel.scale[name]));
  const scale = { forwards: most("forwards"), positions: most("positions") };
  for (const panel of shown) {
    const { forwards, positions } = panel.scale;
    if (forwards === scale.forwards && positions === scale.positions) continue;
    panel.scale = { ...scale };
    panel.redraw();
  }
}

/** Scrolls to `element` where its answer begins in the lower half of the window or below, as on a phone. */
function bring(element) {
  if (element.querySelector(".answer").getBoundingClientRect().top < innerHeight / 2) return;
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  element.scrollIntoView({ block: "start", behavior: still ? "instant" : "smooth" });
}

/** Asks the questions of the form. */
async function askQuestions() {
  const body = {
    model: model.id,
    input: at("prompt").value,
    questions: questions.value,
    diffusion: { read: at("read").value || undefined, orders: at("orders").valueAsNumber },
  };
  at("panels").replaceChildren(decided);
  decided.replaceChildren();
  try {
    say(await runDecision(body, at("key").value, running.signal, decided));
  } catch (error) {
    say(running.signal.aborted ? "Stopped." : error.message);
  }
}

/** Runs `work` while the form waits. */
async function busy(work) {
  running = new AbortController();
  at("run").disabled = true;
  at("stop").disabled = false;
  say("Running.");
  await work();
  running = null;
  at("run").disabled = false;
  at("stop").disabled = true;
}

/** Replays both answers of a race side by side. */
function replay(shown) {
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  const longest = Math.max(1, ...shown.map((panel) => panel.forwards));
  for (const panel of shown) panel.replay(Math.min(REPLAY.step, REPLAY.all / longest));
}

/** The line about a race whose answers are complete; empty for others. */
function judge(shown) {
  if (shown.length < 2 || shown.some((panel) => panel.element.dataset.state !== "done")) return "";
  const [first, second] = shown.map(({ forwards, text }, index) =>
    ({ name: titles[index], forwards, text, seconds: times[index] }));
  return verdict(first, second);
}

async function run() {
  if (!model || running) return;
  if (mode() === "decide") {
    await busy(askQuestions);
    return;
  }
  const indices = at("race").checked ? [0, 1] : [0];
  let bodies = [];
  try {
    bodies = indices.map((index) => request(model, pickers[index], turns));
  } catch (error) {
    say(error.message);
    return;
  }
  const shown = indices.map((index) => panels[index]);
  at("share").hidden = true;
  await busy(async () => {
    at("panels").replaceChildren(...shown.map((panel) => panel.element));
    for (const panel of panels) panel.onscale = () => share(shown);
    if (document.body.dataset.ready === "") bring(shown[0].element);
    const told = [];
    // One after the other, so that neither slows the other down.
    for (const index of indices) {
      if (!running.signal.aborted) told.push(await answer(index, bodies[index], running.signal));
    }
    const line = judge(shown);
    say([...told, line].join(" ").trim());
    if (line) replay(shown);
    at("share").hidden = !shown.every((panel) => panel.element.dataset.state !== "failed");
    at("save").onclick = () =>
      save(picture(shown.map((panel) => panel.picture), at("model").textContent, line), "answer.png");
    remember(bodies[0], shown[0]);
  });
}

/** Keeps the turns of a chat, if they are to be kept. A failed answer leaves those before it. */
function remember({ messages }, panel) {
  if (panel.element.dataset.state === "failed") return;
  const isKept = at("keep").checked && messages;
  turns = isKept ? [...messages.filter(({ role }) => role !== "system")] : [];
  if (isKept) turns.push({ role: "assistant", content: panel.text });
}

/** Copies an address that fills the form and runs it again; shows it where there is no clipboard. */
async function copyLink() {
  const decoders = pickers.map((picker) => picker.value ?? {});
  history.replaceState(null, "", toFragment(decoders));
  try {
    await navigator.clipboard.writeText(location.href);
    say("The link is copied.");
  } catch {
    say("The address of this page is the link.");
  }
}

at("form").addEventListener("submit", (event) => {
  event.preventDefault();
  run();
});
at("form").addEventListener("change", ({ target }) => {
  if (target.name === "mode") show();
});
at("link").addEventListener("click", copyLink);
at("tool").addEventListener("click", () => {
  at("tools").value = EXAMPLE_TOOLS;
});
at("stop").addEventListener("click", () => running?.abort());
at("race").addEventListener("change", show);
at("key").addEventListener("change", load);
at("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) at("form").requestSubmit();
});
at("panels").append(panels[0].element);
load();
