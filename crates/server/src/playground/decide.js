// Decisions: a small form of questions, and bars for the probabilities of their options.

import { decide } from "./api.js";
import { count } from "./trace.js";

const KINDS = { predicate: "", choice: "coins, eggs, books", score: "low, middle, high" };
const FIRST = [
  ["predicate", "Tom has 12 coins now.", ""],
  ["choice", "What does Tom have?", KINDS.choice],
];

/** Creates an element with properties and children. */
function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

/** The form of the questions. */
export class Questions {
  constructor(list, add) {
    this.list = list;
    for (const row of FIRST) this.add(...row);
    add.addEventListener("click", () => this.add("predicate", "", "").focus());
  }

  add(kind, text, options) {
    const select = element("select", { ariaLabel: "Type" });
    for (const name of Object.keys(KINDS)) select.append(element("option", {}, name));
    select.value = kind;
    const instructions = element("input", { ariaLabel: "Instructions", value: text });
    const choices = element("input", { ariaLabel: "Options", value: options });
    const remove = element("button", { type: "button", ariaLabel: "Remove" }, "×");
    const row = element("li", {}, select, instructions, choices, remove);
    const show = () => {
      choices.hidden = select.value === "predicate";
      choices.value ||= KINDS[select.value];
    };
    select.addEventListener("change", show);
    remove.addEventListener("click", () => row.remove());
    show();
    this.list.append(row);
    return instructions;
  }

  get value() {
    return [...this.list.children].map((row) => {
      const [type, instructions, options] = [...row.children].map((field) => field.value);
      const names = options.split(",").map((name) => name.trim()).filter(Boolean);
      return {
        type,
        instructions,
        choices: type === "choice" ? names.map((value) => ({ value })) : undefined,
        levels: type === "score" ? names.map((label) => ({ label })) : undefined,
      };
    });
  }
}

/** Name and probability of each option of an answer. */
function options(answer) {
  if (answer.type === "predicate") {
    return [["true", answer.probability], ["false", 1 - answer.probability]];
  }
  return answer.probabilities.map((of) => [`${of.label ?? of.value}`, of.probability]);
}

/** One answer: its bars, and below them its place in the pass. */
function shown(answer, question, number) {
  const bars = options(answer);
  const [best] = bars.reduce((one, other) => (other[1] > one[1] ? other : one));
  const rows = bars.flatMap(([name, probability]) => [
    element("dt", {}, name),
    element(
      "dd",
      {},
      element("meter", { value: probability, ariaLabel: name }),
      ` ${probability.toFixed(3)}`,
    ),
  ]);
  const pass = element(
    "p",
    { className: "cells" },
    element("span", { className: "cell committed" }, `${number}:`),
    element("span", { className: "cell committed generate frontier" }, best),
  );
  return element(
    "section",
    {},
    element("h3", {}, question.instructions),
    element("dl", { className: "bars" }, ...rows),
    pass,
  );
}

/** Requests the answers to `body` and shows them in `panel`; returns a line about the cost. */
export async function run(body, key, signal, panel) {
  const start = performance.now();
  const { answers, usage } = await decide(body, key, signal);
  const milliseconds = Math.round(performance.now() - start);
  const sections = answers.map((answer, index) => shown(answer, body.questions[index], index + 1));
  panel.replaceChildren(element("h2", {}, "Decisions"), ...sections);
  const { forwards, rows } = usage.diffusion;
  const cost = `${count(forwards, "forward")}, ${count(rows, "row")}`;
  return `${count(answers.length, "answer")}: ${cost}, ${milliseconds} ms.`;
}
