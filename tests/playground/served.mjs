// The server under test, as a process on a free port.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";

/** Starts `asynclane serve` with the demo model; resolves once it takes requests. */
export async function serve(...options) {
  const listen = ["--listen", "127.0.0.1:0"];
  const { BINARY, PATH, HOME } = process.env;
  const child = spawn(BINARY, ["serve", ...listen, ...options], {
    env: { PATH, HOME },
    stdio: ["ignore", "ignore", "pipe"],
  });
  const ended = once(child, "exit");
  const log = [];
  const url = await new Promise((resolve, reject) => {
    createInterface({ input: child.stderr })
      .on("line", (line) => {
        log.push(line);
        if (line.startsWith("ready on ")) resolve(line.slice("ready on ".length));
      })
      .on("close", () => reject(new Error(`the server ended:\n${log.join("\n")}`)));
  });
  return {
    url,
    /** Ends it as an operator would; returns its exit status. */
    async stop() {
      child.kill("SIGTERM");
      return (await ended)[0];
    },
  };
}

/** The answer to a POST of `body`; must be one. */
export async function post(url, path, body) {
  const response = await fetch(url + path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${path}: ${response.status} ${text}`);
  return text;
}

/** The text and the usage of the plain answer to the body of a trace. */
export async function plain(url, body) {
  const path = body.messages ? "/v1/chat/completions" : "/v1/completions";
  const { choices, usage } = JSON.parse(await post(url, path, body));
  return { text: choices[0].message?.content ?? choices[0].text, usage };
}

/** The events of a trace: [name, data]. */
export const events = async (url, body) => parsed(await post(url, "/v1/diffusion/trace", body));

/** The events in the text of a trace. */
export function parsed(text) {
  return text
    .split("\n\n")
    .filter((event) => event !== "")
    .map((event) => {
      const [name, data] = event.split("\n");
      return [name.replace("event: ", ""), JSON.parse(data.replace("data: ", ""))];
    });
}
