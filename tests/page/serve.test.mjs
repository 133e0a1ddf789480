// The page over loopback: it is served whole, to this machine alone, and the server ends when told.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { after, before, test } from "node:test";
import { BIN, launch, open } from "./support.mjs";

let browser;
before(async () => { browser = await launch(); });
after(() => browser.close());

test("--serve prints an address at which the page works", { timeout: 60_000 }, async () => {
  const server = spawn(BIN, ["view", "--serve"], { stdio: ["ignore", "pipe", "pipe"] });
  try {
    const [printed] = await once(server.stdout.setEncoding("utf8"), "data");
    assert.match(printed, /^http:\/\/127\.0\.0\.1:\d+\/\n$/);
    const page = await open(browser, printed.trim());
    await page.locator("#step").click();
    assert.equal(await page.locator("#position-text").textContent(), "Step 1 of 3");
    await page.finish();
    assert.equal((await fetch(`${printed.trim()}other`)).status, 404);
  } finally {
    server.kill("SIGINT");
  }
  const [code] = await once(server, "exit");
  assert.equal(code, 130);
});
