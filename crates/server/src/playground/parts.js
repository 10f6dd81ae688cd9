// The parts of an answer as blocks: reasoning, text, calls of functions.

/** Joins the pieces of a trace's `parts` events to blocks. */
export function blocks(parts) {
  const joined = [];
  for (const { type, text = "", name } of parts) {
    const last = joined.at(-1);
    if (type === "arguments" && last) last.text += text;
    else if (type === last?.type && type !== "call") last.text += text;
    else joined.push({ type, name, text });
  }
  return joined;
}

/** Arguments with a member per line; incomplete ones as they are. */
export function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function make(name, className, text) {
  return Object.assign(document.createElement(name), { className, textContent: text });
}

/** An element per block. */
export function drawParts(parts) {
  const shown = blocks(parts).filter(({ type, text }) => type === "call" || text.trim() !== "");
  return shown.map(({ type, name, text }) => {
    const block = make("div", `part ${type}`, type === "text" ? text : "");
    if (type === "call") block.append(make("code", "", name), make("pre", "", pretty(text)));
    if (type === "reasoning") block.append(make("small", "", "reasoning"), text.trim());
    return block;
  });
}

/** The functions of the form as a request has them; fails if they are no list. */
export function readTools(text) {
  if (text.trim() === "") return undefined;
  let tools = null;
  try {
    tools = JSON.parse(text);
  } catch {
    // Told below.
  }
  if (!Array.isArray(tools)) throw new Error("Functions must be a JSON list of tools.");
  return tools;
}
