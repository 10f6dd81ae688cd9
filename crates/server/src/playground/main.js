// The page: one form, one panel per answer; a race has two.

import { curl, servedModel, trace } from "./api.js";
import { Questions, run as runDecision } from "./decide.js";
import { DecoderPicker } from "./decoder.js";
import { Panel } from "./panel.js";
import { readTools } from "./parts.js";
import { count } from "./trace.js";

/** Pause between requests to a server that is loading, in milliseconds. */
const AGAIN = 1000;
const BUDGET = 256;
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

at("first").append(pickers[0].element);
at("second").append(pickers[1].element);

function say(text) {
  at("status").textContent = text;
}

/** Fills the pickers with the server's presets and settings; waits until the model is loaded. */
async function load() {
  try {
    model = await servedModel(at("key").value);
  } catch (error) {
    say(error.status === 401 ? "This server needs an API key." : error.message);
    if (error.code === "loading") setTimeout(load, AGAIN);
    return;
  }
  at("model").textContent = `${model.id}, ${model.max_model_len} positions`;
  const budget = at("budget");
  budget.max = model.max_model_len;
  budget.value = Math.min(BUDGET, model.max_model_len);
  pickers[0].offer(model.diffusion, "");
  pickers[1].offer(model.diffusion, model.diffusion.presets.vanilla ? "vanilla" : "autoregressive");
  offerExamples(model.demo ? DEMO : OTHER);
  say("");
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

/** The request body of the form, with the decoder of `picker`. */
function request(picker) {
  const prompt = at("prompt").value;
  const isChat = at("form").elements.mode.value === "chat";
  const input = isChat ? { messages: [{ role: "user", content: prompt }] } : { prompt };
  const tools = isChat ? readTools(at("tools").value) : undefined;
  const number = (id) => (at(id).value === "" ? undefined : at(id).valueAsNumber);
  return {
    model: model.id,
    ...input,
    max_tokens: number("budget"),
    temperature: number("temperature"),
    seed: number("seed"),
    tools,
    tool_choice: tools && at("called").checked ? "required" : undefined,
    diffusion: picker.value,
  };
}

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

const isDecision = () => at("form").elements.mode.value === "decide";

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

async function run() {
  if (!model || running) return;
  if (isDecision()) {
    await busy(askQuestions);
    return;
  }
  const indices = at("race").checked ? [0, 1] : [0];
  let bodies = [];
  try {
    bodies = indices.map((index) => request(pickers[index]));
  } catch (error) {
    say(error.message);
    return;
  }
  const shown = indices.map((index) => panels[index]);
  await busy(async () => {
    at("panels").replaceChildren(...shown.map((panel) => panel.element));
    for (const panel of panels) panel.onscale = () => share(shown);
    bring(shown[0].element);
    const told = await Promise.all(
      indices.map((index) => answer(index, bodies[index], running.signal)),
    );
    say(told.join(" "));
  });
}

at("form").addEventListener("submit", (event) => {
  event.preventDefault();
  run();
});
at("form").addEventListener("change", ({ target }) => {
  if (target.name !== "mode") return;
  at("decision").hidden = !isDecision();
  for (const part of document.querySelectorAll(".answered")) part.hidden = isDecision();
  at("second").hidden = isDecision() || !at("race").checked;
});
at("stop").addEventListener("click", () => running?.abort());
at("race").addEventListener("change", () => {
  at("second").hidden = !at("race").checked;
  at("run").textContent = at("race").checked ? "Race" : "Run";
});
at("key").addEventListener("change", load);
at("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) at("form").requestSubmit();
});
at("panels").append(panels[0].element);
load();
