// Calls of functions with the openai package and the AI SDK for Node, as loops of two steps in which
// the demo model decides to call, reads the result and answers.

import assert from "node:assert/strict";
import { test } from "node:test";

import { createOpenAI } from "@ai-sdk/openai";
import { generateText, stepCountIs, tool } from "ai";
import OpenAI from "openai";
import { z } from "zod";

const URL = process.env.SERVER_URL;
const client = new OpenAI({ baseURL: `${URL}/v1`, apiKey: "unused", maxRetries: 0 });
const question = "Tom has 9 coins. Then he buys 6 more coins. How many coins does Tom have now?";
const parameters = {
  type: "object",
  properties: {
    a: { type: "integer", minimum: 0, maximum: 99 },
    b: { type: "integer", minimum: 0, maximum: 99 },
  },
  required: ["a", "b"],
};
const add = { name: "add", description: "Adds two numbers.", parameters };

function added(text) {
  const { a, b, ...rest } = JSON.parse(text);
  assert.deepEqual([Math.min(a, b), Math.max(a, b)], [6, 9]);
  assert.deepEqual(rest, {});
  return "15";
}

test("openai: a loop over chats, streamed", async () => {
  const messages = [{ role: "user", content: question }];
  const common = {
    model: "demo",
    messages,
    tools: [{ type: "function", function: add }],
    max_tokens: 120,
  };
  const stream = client.chat.completions.stream(common);
  const { choices } = await stream.finalChatCompletion();
  assert.equal(choices[0].finish_reason, "tool_calls");
  const [call] = choices[0].message.tool_calls;
  messages.push(choices[0].message);
  messages.push({ role: "tool", tool_call_id: call.id, content: added(call.function.arguments) });
  const last = await client.chat.completions.create(common);
  assert.match(last.choices[0].message.content, /15/);
});

test("openai: a loop over Responses, streamed", async () => {
  const input = [{ role: "user", content: question }];
  const tools = [{ type: "function", strict: false, ...add }];
  const common = { model: "demo", input, tools, max_output_tokens: 120 };
  const stream = client.responses.stream(common);
  let pieces = "";
  stream.on("response.function_call_arguments.delta", (event) => {
    pieces += event.delta;
  });
  const { output } = await stream.finalResponse();
  assert.equal(output[0].arguments, pieces);
  input.push(output[0]);
  const call_id = output[0].call_id;
  input.push({ type: "function_call_output", call_id, output: added(pieces) });
  const last = await client.responses.create(common);
  assert.equal(last.status, "completed");
  assert.match(last.output_text, /15/);
});

test("@ai-sdk/openai: a loop that the SDK runs, over Responses", async () => {
  const openai = createOpenAI({ baseURL: `${URL}/v1`, apiKey: "unused" });
  const sums = [];
  const answer = await generateText({
    model: openai("demo"),
    prompt: question,
    maxOutputTokens: 120,
    maxRetries: 0,
    stopWhen: stepCountIs(2),
    tools: {
      add: tool({
        description: "Adds two numbers.",
        inputSchema: z.object({ a: z.number().int(), b: z.number().int() }),
        execute: ({ a, b }) => {
          sums.push(a + b);
          return a + b;
        },
      }),
    },
    // The server stores nothing, so that every request has the whole history.
    providerOptions: { openai: { store: false } },
  });
  assert.deepEqual(sums, [15]);
  assert.equal(answer.steps.length, 2);
  assert.match(answer.text, /15/);
});
