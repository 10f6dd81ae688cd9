// The form as a request, and as a link that fills it again.

import { readTools } from "./parts.js";

const at = (id) => document.getElementById(id);
/** Controls that a link holds, by id. */
const TEXTS = ["prompt", "system", "suffix", "tools", "format", "budget", "temperature", "seed"];
const FLAGS = ["race", "called", "keep"];

/** A function that the demo model knows. */
export const EXAMPLE_TOOLS = JSON.stringify([{
  type: "function",
  function: {
    name: "add",
    parameters: {
      type: "object",
      properties: { a: { type: "integer" }, b: { type: "integer" } },
      required: ["a", "b"],
    },
  },
}]);

export const mode = () => at("form").elements.mode.value;

/** The structured output that the form asks for: a JSON schema, or a regular expression. */
function format() {
  const text = at("format").value.trim();
  if (text === "") return {};
  if (!text.startsWith("{")) return { regex: text };
  try {
    const schema = JSON.parse(text);
    return { response_format: { type: "json_schema", json_schema: { name: "answer", schema } } };
  } catch {
    throw new Error("The format must be a JSON schema or a regular expression.");
  }
}

/** The body of a request of `model` by the decoder of `picker`, after the `turns` of a chat. */
export function request(model, picker, turns) {
  const prompt = at("prompt").value;
  const isChat = mode() === "chat";
  const system = at("system").value.trim();
  const messages = [
    ...(system ? [{ role: "system", content: system }] : []),
    ...(at("keep").checked ? turns : []),
    { role: "user", content: prompt },
  ];
  const tools = isChat ? readTools(at("tools").value) : undefined;
  const number = (id) => (at(id).value === "" ? undefined : at(id).valueAsNumber);
  return {
    model: model.id,
    ...(isChat ? { messages } : { prompt, suffix: at("suffix").value || undefined }),
    max_tokens: number("budget"),
    temperature: number("temperature"),
    seed: number("seed"),
    ...format(),
    tools,
    tool_choice: tools && at("called").checked ? "required" : undefined,
    diffusion: picker.value,
  };
}

/** The form in the fragment of an address. */
export function toFragment(decoders) {
  const texts = TEXTS.map((id) => [id, at(id).value]).filter(([, value]) => value !== "");
  const flags = FLAGS.filter((id) => at(id).checked);
  const state = { mode: mode(), texts: Object.fromEntries(texts), flags, decoders };
  return `#${encodeURIComponent(JSON.stringify(state))}`;
}

/** Fills the form from the fragment of an address; returns its decoders, or null without a fragment
 *  that this page wrote. */
export function fromFragment(fragment) {
  let state = null;
  try {
    state = JSON.parse(decodeURIComponent(fragment.slice(1)));
  } catch {
    return null;
  }
  if (!Array.isArray(state?.decoders)) return null;
  at("form").elements.mode.value = ["completion", "decide"].includes(state.mode) ? state.mode : "chat";
  for (const id of TEXTS) at(id).value = `${state.texts?.[id] ?? ""}`;
  for (const id of FLAGS) at(id).checked = Boolean(state.flags?.includes(id));
  return state.decoders;
}
