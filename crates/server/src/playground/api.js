// The server's API: the served model, and traced answers.

import { createParser } from "./eventsource-parser/index.js";

/** An error of the API. */
export class ApiError extends Error {
  constructor({ message, param, code }, status) {
    super(message);
    this.param = param;
    this.code = code;
    this.status = status;
  }
}

async function ask(path, key, options = {}) {
  const headers = { ...options.headers };
  if (key) headers.authorization = `Bearer ${key}`;
  const response = await fetch(path, { ...options, headers }).catch((error) => {
    if (error.name === "AbortError") throw error;
    throw new Error("The server cannot be reached. Does it still run?");
  });
  if (response.ok) return response;
  const answer = await response.json().catch(() => null);
  const error = answer?.error ?? { message: `the server answered with status ${response.status}` };
  throw new ApiError(error, response.status);
}

/** The served model, from `GET /v1/models`. */
export async function servedModel(key) {
  const response = await ask("/v1/models", key);
  return (await response.json()).data[0];
}

/** The answers to a decision. */
export async function decide(request, key, signal) {
  const headers = { "content-type": "application/json" };
  const options = { method: "POST", headers, body: JSON.stringify(request), signal };
  return (await ask("/v1/decisions", key, options)).json();
}

/** Requests a traced answer and calls `on[event](data)` for each event. */
export async function trace(request, key, signal, on) {
  const response = await ask("/v1/diffusion/trace", key, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(request),
    signal,
  });
  let ended = false;
  const parser = createParser({
    onEvent({ event, data }) {
      const content = JSON.parse(data);
      if (event === "error") throw new ApiError(content.error);
      ended ||= event === "done";
      on[event]?.(content);
    },
  });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    parser.feed(value);
  }
  if (!ended) throw new Error("the connection ended before the answer did");
}

/** The request as a curl command; the key stays in a shell variable. */
export function curl(request, origin, hasKey) {
  const quote = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
  const path = request.messages ? "/v1/chat/completions" : "/v1/completions";
  const key = hasKey ? ` \\\n  -H "authorization: Bearer $ASYNCLANE_API_KEY"` : "";
  const body = quote(JSON.stringify({ ...request, stream: true }));
  const json = "-H 'content-type: application/json'";
  return `curl -N ${origin}${path} \\\n  ${json}${key} \\\n  -d ${body}`;
}
