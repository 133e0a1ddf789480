// Runs the command, opens its pages in Chromium, and reads what is on them.

import { chromium } from "playwright-core";
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

export const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const BIN = process.env.RINGATTN_BIN ?? join(ROOT, "target/release/ringattn");
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";

// A folder that goes away, and the command.
export function sandbox() {
  const folder = mkdtempSync(join(tmpdir(), "ringattn-page-"));
  return {
    path: (name) => join(folder, name),
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}

export const ringattn = (...args) =>
  execFileSync(BIN, args, { encoding: "utf8", timeout: 120_000, stdio: ["ignore", "pipe", "pipe"] });
export { BIN };

export const launch = () => chromium.launch({
  executablePath: CHROMIUM,
  args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--no-first-run"],
});

// Opens a page; any error on its console and any request but its own fails the test at `close`.
export async function open(browser, where, options = {}) {
  const url = where.startsWith("http") ? where : pathToFileURL(where).href;
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, reducedMotion: "reduce", ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(10_000);
  const faults = [];
  page.on("console", (message) => { if (["error", "warning"].includes(message.type())) faults.push(message.text()); });
  page.on("pageerror", (error) => faults.push(error.message));
  page.on("request", (request) => { if (request.url() !== url && !request.url().startsWith("data:")) faults.push(`request ${request.url()}`); });
  await page.goto(url);
  page.finish = async () => {
    await context.close();
    assert.deepEqual(faults, []);
  };
  return page;
}

// Everything that one step shows, as plain data.
export const snapshot = (page) => page.evaluate(() => {
  const text = (selector, root = document) => root.querySelector(selector)?.textContent ?? null;
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const rows = (table) => all("tbody tr", table).map((row) => [...row.children].map((cell) => cell.textContent));
  const kind = (element) => ["hidden-pair", "later", "now", "done"].find((name) => element.classList.contains(name));
  return {
    position: Number(document.getElementById("position").value),
    title: text("#position-text"),
    live: text("#live"),
    caption: text("#ring-words"),
    center: text(".center-step"),
    devices: all(".device").map((device) => ({
      rank: Number(device.dataset.rank), work: text(".device-work", device), idle: device.classList.contains("idle"),
      absorbed: all(".segment", device).map((segment) => segment.classList.contains("absorbed")),
    })),
    chips: all(".chip").map((chip) => ({ block: Number(chip.dataset.block), at: Number(chip.dataset.at), passing: chip.classList.contains("passing"), text: chip.textContent })),
    table: rows(document.getElementById("ring-table")),
    holding: all("#holding tbody tr").map((row) => all("td", row).map((cell) => `${cell.dataset.kind} ${cell.querySelector("span").textContent}`.trim())),
    readouts: Object.fromEntries(all(".readout").map((readout) => [readout.dataset.id, { value: Number(readout.dataset.value), text: text("b", readout), detail: text(".detail", readout) }])),
    grids: Object.fromEntries(all("figure.grid").map((figure) => [figure.dataset.layout, {
      cells: all(".pair", figure).map(kind), chosen: figure.classList.contains("chosen"),
      bars: all(".bar-text", figure).map((bar) => Number(bar.lastChild.textContent)),
      table: rows(figure.querySelector("table")), share: text(".big", figure),
    }])),
    strip: all("#sequence-picture .token").map((token) => token.getAttribute("style")),
  };
});
