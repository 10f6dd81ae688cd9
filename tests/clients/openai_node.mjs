// The openai package for Node: the same core as in Python.

import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";

const URL = process.env.SERVER_URL;
const SUM =
  "Tom has 9 coins. Then he buys 6 more coins. Next he loses 3 coins. " +
  "How many coins does Tom have now?";
const CHAT = { model: "demo", messages: [{ role: "user", content: SUM }], temperature: 0 };
const client = new OpenAI({
  baseURL: `${URL}/v1`,
  apiKey: "unused",
  maxRetries: 0,
  timeout: 60_000,
});

const get = async (path) => (await fetch(URL + path)).text();

async function cancelledRequests() {
  const lines = (await get("/metrics")).split("\n");
  return lines
    .filter((line) => line.startsWith("asynclane_requests_total{"))
    .filter((line) => line.includes('outcome="cancelled"'))
    .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(" "))), 0);
}

test("chat", async () => {
  const answer = await client.chat.completions.create(CHAT);
  assert.equal(answer.object, "chat.completion");
  assert.match(answer.choices[0].message.content, /#### 12$/);
  assert.equal(answer.choices[0].finish_reason, "stop");
  const { prompt_tokens, completion_tokens, total_tokens } = answer.usage;
  assert.equal(total_tokens, prompt_tokens + completion_tokens);
  assert.ok(answer._request_id);
});

test("completion, list of prompts, n = 2", async () => {
  const answer = await client.completions.create({
    model: "demo",
    prompt: ["Tom has 9 coins.", "Ana has 3 books."],
    n: 2,
    max_tokens: 12,
    temperature: 0,
  });
  assert.equal(answer.object, "text_completion");
  assert.deepEqual(
    answer.choices.map((choice) => choice.index),
    [0, 1, 2, 3],
  );
  assert.equal(answer.choices[0].text, answer.choices[1].text);
});

test("stop is left out", async () => {
  const whole = (await client.chat.completions.create(CHAT)).choices[0].message.content;
  const answer = await client.chat.completions.create({ ...CHAT, stop: "####" });
  assert.equal(answer.choices[0].message.content, whole.split("####")[0]);
  assert.equal(answer.choices[0].finish_reason, "stop");
});

test("same seed, same text", async () => {
  const text = async (seed) => {
    const answer = await client.chat.completions.create({ ...CHAT, temperature: 1.5, seed });
    return answer.choices[0].message.content;
  };
  assert.equal(await text(7), await text(7));
  const others = await Promise.all([1, 2, 3, 4, 5, 6, 7, 8].map(text));
  assert.ok(new Set(others).size > 1, "every seed says the same");
});

test("diffusion settings", async () => {
  const answer = await client.chat.completions.create({
    ...CHAT,
    max_tokens: 96,
    diffusion: { preset: "vanilla" },
  });
  assert.match(answer.usage.diffusion.decoder, /^block_wise\+top_k/);
});

test("log-probabilities", async () => {
  const fields = { max_tokens: 8, logprobs: true, top_logprobs: 2 };
  const answer = await client.chat.completions.create({ ...CHAT, ...fields });
  const tokens = answer.choices[0].logprobs.content;
  assert.equal(tokens.length, answer.usage.completion_tokens);
  assert.equal(
    tokens.map((token) => token.token).join(""),
    answer.choices[0].message.content,
  );
  for (const token of tokens) {
    assert.equal(token.top_logprobs.length, 2);
    // Greedy: the chosen token is the most probable one.
    assert.equal(token.top_logprobs[0].token, token.token);
    assert.ok(token.logprob <= 0);
  }
});

test("JSON schema", async () => {
  const schema = {
    type: "object",
    properties: {
      unit: { enum: ["coins", "eggs"] },
      count: { type: "integer", minimum: 0, maximum: 99 },
    },
    required: ["unit", "count"],
    additionalProperties: false,
  };
  const response_format = {
    type: "json_schema",
    json_schema: { name: "counted", strict: true, schema },
  };
  const answer = await client.chat.completions.create({ ...CHAT, response_format });
  assert.equal(answer.choices[0].finish_reason, "stop");
  const counted = JSON.parse(answer.choices[0].message.content);
  assert.deepEqual(Object.keys(counted), ["unit", "count"]);
  assert.ok(["coins", "eggs"].includes(counted.unit));
  assert.ok(Number.isInteger(counted.count) && counted.count >= 0 && counted.count <= 99);
});

test("chat stream with usage equals the plain answer", async () => {
  const plain = await client.chat.completions.create(CHAT);
  const stream = await client.chat.completions.create({
    ...CHAT,
    stream: true,
    stream_options: { include_usage: true },
  });
  let text = "";
  const reasons = [];
  const usages = [];
  for await (const chunk of stream) {
    if (chunk.usage) usages.push(chunk.usage);
    for (const choice of chunk.choices) {
      text += choice.delta.content ?? "";
      if (choice.finish_reason) reasons.push(choice.finish_reason);
    }
  }
  assert.equal(text, plain.choices[0].message.content);
  assert.deepEqual(reasons, ["stop"]);
  assert.equal(usages.length, 1);
  assert.equal(usages[0].completion_tokens, plain.usage.completion_tokens);
});

test("chat stream helper accumulates the answer", async () => {
  const stream = client.chat.completions.stream(CHAT);
  let deltas = "";
  stream.on("content", (delta) => (deltas += delta));
  const final = await stream.finalContent();
  assert.match(final, /#### 12$/);
  assert.equal(deltas, final);
});

test("completion stream equals the plain answer", async () => {
  const request = { model: "demo", prompt: "Tom has 9 coins.", max_tokens: 24, seed: 5 };
  const plain = await client.completions.create(request);
  let text = "";
  for await (const chunk of await client.completions.create({ ...request, stream: true })) {
    assert.equal(typeof chunk.choices[0].text, "string");
    text += chunk.choices[0].text;
  }
  assert.equal(text, plain.choices[0].text);
});

test("concurrent streams equal single ones", async () => {
  const text = async (seed) => {
    const request = { ...CHAT, temperature: 0.7, seed, stream: true };
    let joined = "";
    for await (const chunk of await client.chat.completions.create(request)) {
      joined += chunk.choices[0].delta.content ?? "";
    }
    return joined;
  };
  const seeds = [0, 1, 2, 3, 4, 5, 6, 7];
  const together = await Promise.all(seeds.map(text));
  for (const seed of seeds) assert.equal(together[seed], await text(seed));
});

test("a stream that is left is cancelled in the server", async () => {
  const before = await cancelledRequests();
  const stream = await client.chat.completions.create({
    ...CHAT,
    stream: true,
    max_tokens: 900,
    ignore_eos: true,
  });
  for await (const chunk of stream) if (chunk.choices[0].delta.content) break;
  const limit = Date.now() + 20_000;
  let load, count;
  do {
    load = await get("/load");
    count = (await cancelledRequests()) - before;
  } while ((load !== '{"server_load":0}' || count !== 1) && Date.now() < limit);
  assert.deepEqual([load, count], ['{"server_load":0}', 1]);
});

test("errors", async () => {
  const refused = async (fields) => {
    try {
      await client.chat.completions.create({ ...CHAT, ...fields });
    } catch (error) {
      return error;
    }
    assert.fail(`accepted ${JSON.stringify(fields)}`);
  };
  const unknown = await refused({ model: "nope" });
  assert.ok(unknown instanceof OpenAI.NotFoundError);
  assert.deepEqual([unknown.code, unknown.param], ["model_not_found", "model"]);
  const bad = await refused({ temperature: 3 });
  assert.ok(bad instanceof OpenAI.BadRequestError);
  assert.deepEqual([bad.code, bad.param], ["invalid_value", "temperature"]);
  assert.equal(bad.type, "invalid_request_error");
  assert.ok(bad.requestID);
  assert.ok((await refused({ stream: true, top_p: 2 })) instanceof OpenAI.BadRequestError);
});

test("models", async () => {
  const models = await client.models.list();
  assert.deepEqual(
    models.data.map((model) => model.id),
    ["demo"],
  );
  assert.equal((await client.models.retrieve("demo")).object, "model");
});
