// The mode "decide" of the playground: its bars are the API's probabilities.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { assertAccessible, close, launch, offered, open } from "./page.mjs";
import { post, serve } from "./served.mjs";

let server, browser;
before(async () => {
  server = await serve();
  browser = await launch();
});
after(async () => {
  await browser?.close();
  assert.equal(await server?.stop(), 0, "the server ends in order");
});

test("questions are asked, and bars show the probabilities", async () => {
  const opened = await open(browser, server.url);
  const { page } = opened;
  await offered(page);
  const sent = [];
  page.on("request", (request) => {
    if (request.url().endsWith("/v1/decisions")) sent.push(request.postDataJSON());
  });
  await page.getByLabel("decide").check();
  assert.equal(await page.getByLabel("budget").isVisible(), false);
  await page.getByText("was not trained to decide").waitFor();
  await page.getByLabel("Prompt", { exact: true }).fill("Tom has 9 coins.");
  await page.getByRole("button", { name: "Add" }).click();
  const last = page.locator("#questions li").last();
  await last.getByLabel("Type").selectOption("score");
  await last.getByLabel("Instructions").fill("How many coins?");
  await last.getByLabel("Options").fill("none, some, many");
  await page.getByLabel("orders").fill("2");
  await page.getByRole("button", { name: "Run" }).click();
  await page.getByText("3 answers: 2 forwards").waitFor();
  assert.equal(sent.length, 1);
  assert.equal(sent[0].questions.length, 3);
  const { answers } = JSON.parse(await post(server.url, "/v1/decisions", sent[0]));
  const meters = page.locator(".bars meter");
  const drawn = await meters.evaluateAll((all) => all.map((meter) => meter.value));
  const expected = answers.flatMap((answer) =>
    answer.type === "predicate"
      ? [answer.probability, 1 - answer.probability]
      : answer.probabilities.map(({ probability }) => probability));
  assert.deepEqual(drawn, expected);
  await assertAccessible(page, "decisions");
  await page.locator("#questions li").first().getByLabel("Remove").click();
  await last.getByLabel("Options").fill("one");
  await page.getByRole("button", { name: "Run" }).click();
  await page.getByText("questions[1].levels must have 2 to 10 members").waitFor();
  await page.getByLabel("chat").first().check();
  assert.equal(await page.getByLabel("budget").isVisible(), true);
  await close(opened, ["the server responded with a status of 400"]);
});
