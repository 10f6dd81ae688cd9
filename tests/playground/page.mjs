// A browser and its pages, with checks for forbidden events.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
  "--no-first-run", "--disable-background-networking", "--disable-component-update",
  "--disable-sync"];
/** A name from elsewhere that leads to this machine. */
export const REBOUND = "rebound.example";
/** Milliseconds that anything on a page may take. */
const PATIENCE = 60_000;

export const launch = () =>
  chromium.launch({
    executablePath: "/usr/bin/chromium",
    args: [...ARGUMENTS, `--host-resolver-rules=MAP ${REBOUND} 127.0.0.1`],
  });

/** The page at `url`, ready to be used; `options` are those of a browser's context. */
export async function open(browser, url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  context.setDefaultTimeout(PATIENCE);
  const page = await context.newPage();
  const faults = [];
  page.on("console", (message) => {
    const type = message.type();
    if (type === "error" || type === "warning") faults.push(`${type}: ${message.text()}`);
  });
  page.on("pageerror", (error) => faults.push(`thrown: ${error.message}`));
  page.on("request", (request) => {
    if (new URL(request.url()).origin !== new URL(url).origin) {
      faults.push(`foreign request: ${request.url()}`);
    }
  });
  await page.addInitScript(() => {
    window.violations = [];
    document.addEventListener("securitypolicyviolation", (event) =>
      window.violations.push(`${event.violatedDirective} ${event.blockedURI}`));
  });
  await page.goto(url);
  return { page, faults, context };
}

/** Waits until the pickers offer what the server does, and a demo's first answer has ended. */
export const offered = (page) =>
  page.waitForFunction(() => document.body.dataset.ready === "");

/** Waits until the shown answers have ended, one way or the other, and are drawn. */
export async function ended(page) {
  await page.waitForFunction(() => {
    const panels = [...document.querySelectorAll(".panel")];
    const underWay = ["running", "replaying"];
    return panels.every(({ dataset }) => dataset.state && !underWay.includes(dataset.state));
  });
  await page.evaluate(() => new Promise(requestAnimationFrame));
}

/** Nothing went wrong on the page but what is `expected`; closes it. */
export async function close({ page, faults, context }, expected = []) {
  const violations = await page.evaluate(() => window.violations);
  await context.close();
  assert.deepEqual(violations, [], "the policy was violated");
  const left = faults.filter((fault) => !expected.some((known) => fault.includes(known)));
  assert.deepEqual(left, []);
}

const require = createRequire(import.meta.url);
const AXE = await readFile(require.resolve("axe-core/axe.min.js"), "utf8");

/** What axe-core finds wrong with the page as it is. */
export async function assertAccessible(page, where) {
  await page.evaluate(AXE);
  const found = await page.evaluate(() => window.axe.run());
  assert.ok(found.passes.length > 10, `${where}: axe looked at next to nothing`);
  const told = found.violations.map(({ id, nodes }) => `${id}: ${nodes.map((n) => n.html)}`);
  assert.deepEqual(told, [], where);
}

/** The page is no wider than the screen. */
export async function assertFits(page, where) {
  const { inner, scroll } = await page.evaluate(() => ({
    inner: window.innerWidth,
    scroll: document.documentElement.scrollWidth,
  }));
  assert.ok(scroll <= inner, `${where}: ${scroll} pixels on a screen of ${inner}`);
}
