// Every control does what it says, by pointer and by keyboard alone.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, open, ringattn, sandbox } from "./support.mjs";

let browser;
const files = sandbox();
const start = (options) => open(browser, files.path("teach.html"), options);

before(async () => {
  ringattn("view", "--out", files.path("teach.html"));
  browser = await launch();
});

after(async () => {
  await browser.close();
  files.remove();
});

const title = (page) => page.locator("#position-text").textContent();
const value = (page, id) => page.locator(`.readout[data-id="${id}"]`).getAttribute("data-value").then(Number);
const checked = (page, group) => page.locator(`#${group} input:checked`).inputValue();

test("the page begins with four devices and a plain ring", async () => {
  const page = await start();
  assert.equal(await title(page), "Step 0 of 3");
  assert.deepEqual([await checked(page, "ranks"), await checked(page, "layouts"), await checked(page, "masks")], ["4", "contiguous", "full"]);
  await page.finish();
});

test("step, back, reset and the slider move one index", async () => {
  const page = await start();
  for (const wanted of ["Step 1 of 3", "Step 2 of 3", "Step 3 of 3", "Result"]) {
    await page.locator("#step").click();
    assert.equal(await title(page), wanted);
  }
  assert.equal(await page.locator("#step").getAttribute("aria-disabled"), "true");
  await page.locator("#back").click();
  assert.equal(await title(page), "Step 3 of 3");
  await page.locator("#reset").click();
  assert.equal(await title(page), "Step 0 of 3");
  assert.equal(await page.locator("#back").getAttribute("aria-disabled"), "true");
  await page.locator("#position").fill("2");
  assert.equal(await title(page), "Step 2 of 3");
  assert.equal(await value(page, "hops"), 2);
  await page.finish();
});

test("play runs to the result, pause stops, play begins anew", async () => {
  const page = await start();
  await page.clock.install();
  const label = () => page.locator("#play-label").textContent();
  await page.locator("#play").click();
  assert.equal(await label(), "Pause");
  await page.clock.runFor(1750);
  assert.equal(await title(page), "Step 1 of 3");
  await page.locator("#play").click();
  assert.equal(await label(), "Play");
  await page.clock.runFor(10_000);
  assert.equal(await title(page), "Step 1 of 3");
  await page.locator("#play").click();
  await page.clock.runFor(20_000);
  assert.deepEqual([await title(page), await label()], ["Result", "Play"]);
  await page.locator("#play").click();
  assert.equal(await title(page), "Step 0 of 3");
  await page.locator("#step").click();
  assert.equal(await label(), "Play", "a step by hand ends the playing");
  await page.finish();
});

test("another number of devices begins anew, another layout or mask stays in the step", async () => {
  const page = await start();
  await page.locator("#step").click();
  await page.locator("label:has(#layout-zigzag)").click();
  await page.locator("label:has(#mask-causal)").click();
  assert.equal(await title(page), "Step 1 of 3");
  assert.equal(await page.locator("figure.grid.chosen").getAttribute("data-layout"), "zigzag");
  await page.locator("label:has(#ranks-7)").click();
  assert.equal(await title(page), "Step 0 of 6");
  assert.equal(await page.locator(".device").count(), 7);
  assert.deepEqual([await checked(page, "layouts"), await checked(page, "masks")], ["zigzag", "causal"]);
  await page.finish();
});

test("blocks travel along the ring, unless less motion is asked for", async () => {
  for (const [reducedMotion, moves] of [["no-preference", true], ["reduce", false]]) {
    const page = await start({ reducedMotion });
    await page.locator("#step").click();
    const frames = await page.evaluate(() => document.getAnimations().filter((each) => each.effect.target.closest("#ring-picture"))
      .map((each) => each.effect.getKeyframes()[0].transform));
    assert.deepEqual(frames.slice(0, 2), moves ? ["rotate(-0.25turn)", "rotate(0.25turn)"] : []);
    assert.equal(frames.length, moves ? 8 : 0, "an orbit and an upright block for each of four devices");
    await page.finish();
  }
});

test("the tree is stepped level by level", async () => {
  const page = await start();
  await page.locator("label:has(#ranks-8)").click();
  const stepper = page.locator("#tree-stepper");
  const cards = () => page.locator("#tree-states .state:not(.result) h3").allTextContents();
  const names = async () => (await cards()).map((card) => /rank \d/.exec(card)[0]);
  assert.equal((await names()).length, 8);
  await stepper.getByLabel("Next level").click();
  assert.deepEqual(await names(), ["rank 0", "rank 2", "rank 4", "rank 6"]);
  await stepper.getByLabel("Next level").click();
  assert.deepEqual(await names(), ["rank 0", "rank 4"]);
  await stepper.getByLabel("Next level").click();
  assert.deepEqual(await names(), ["rank 0"]);
  assert.equal(await stepper.locator("output").textContent(), "Level 3 of 3");
  assert.equal(await page.locator(".state.result").count(), 1);
  await stepper.getByLabel("Previous level").click();
  assert.equal(await page.locator(".state.result").count(), 0);
  await page.finish();
});

test("each level of the tree is the merge rule applied to the level before", async () => {
  const page = await start();
  const stepper = page.locator("#tree-stepper");
  const states = () => page.evaluate(() => Object.fromEntries([...document.querySelectorAll("#tree-states .state:not(.result)")].map((card) => {
    const [m, z, y] = [...card.querySelectorAll(".number b")].map((b) => b.textContent.replaceAll("−", "-").replace(/[()]/g, "").split(",").map(Number));
    return [Number(card.dataset.rank), { m: m[0], z: z[0], y, from: Number(/rank (\d+) ×/.exec(card.textContent)?.[1] ?? NaN) }];
  })));
  // Four decimals are shown, so a merged number is off by some half units of the last one.
  const near = (a, b) => assert.ok(Math.abs(a - b) < 3e-4, `${a} ${b}`);
  for (const p of [2, 3, 5, 8]) {
    await page.locator(`label:has(#ranks-${p})`).click();
    await stepper.locator("input").fill("0");
    for (let before = await states(), level = 1; level <= Math.ceil(Math.log2(p)); level += 1) {
      await stepper.getByLabel("Next level").click();
      const now = await states();
      for (const [rank, state] of Object.entries(now)) {
        const a = before[rank];
        const b = before[state.from] ?? { m: -Infinity, z: 0, y: [0, 0] };
        const m = Math.max(a.m, b.m);
        near(state.m, m);
        near(state.z, a.z * Math.exp(a.m - m) + b.z * Math.exp(b.m - m));
        state.y.forEach((y, i) => near(y, a.y[i] * Math.exp(a.m - m) + b.y[i] * Math.exp(b.m - m)));
      }
      before = now;
    }
    const [{ m, z, y }] = Object.values(await states());
    const [out, lse] = (await page.locator(".state.result .number b").allTextContents()).map((text) => text.replaceAll("−", "-").split(",").map(Number));
    y.forEach((sum, i) => near(out[i], sum / z));
    near(lse[0], m + Math.log(z));
  }
  await page.finish();
});

test("the tile loop shows the tiles of the chosen device and step", async () => {
  const page = await start();
  await page.locator("label:has(#mask-causal)").click();
  const tiles = () => page.evaluate(() => [...document.querySelectorAll("#tile-picture .tile")].map((tile) => ["full", "edge", "skipped"].find((kind) => tile.classList.contains(kind))));
  // A tile is full when its first query sees its last key, skipped when its last query does not see its first.
  const causal = Array.from({ length: 22 }, (_, q) => Array.from({ length: 4 }, (_, k) => {
    const [first, last] = [q * 96, Math.min(q * 96 + 95, 2047)];
    return last < k * 512 ? "skipped" : first >= k * 512 + 511 ? "full" : "edge";
  })).flat();
  await page.locator("#tile-rank").selectOption("2");
  assert.deepEqual(await tiles(), causal);
  await page.locator("#step").click();
  assert.deepEqual(await tiles(), Array(88).fill("full"));
  assert.match(await page.locator("#tile-which").textContent(), /attends block 1 in step 1/);
  await page.locator("#tile-rank").selectOption("0");
  assert.deepEqual(await tiles(), Array(88).fill("skipped"));
  assert.match(await page.locator("#tile-which").textContent(), /nothing to attend/);
  await page.locator("#reset").click();
  const stepper = page.locator("#tile-stepper");
  const visits = causal.filter((kind) => kind !== "skipped").length;
  assert.equal(await stepper.locator("output").textContent(), `Visit 1 of ${visits}`);
  await stepper.getByLabel("Next visit").click();
  assert.match(await page.locator("#tile-words").textContent(), new RegExp(`^Visit 2 of ${visits}: query tile \\d+ .* before key tile \\d`));
  await page.finish();
});

test("everything can be reached and done by keyboard", async () => {
  const page = await start();
  const press = (...keys) => keys.reduce((before, key) => before.then(() => page.keyboard.press(key)), Promise.resolve());
  const focused = () => page.evaluate(() => document.activeElement.id || document.activeElement.textContent.trim());
  await press("Tab");
  assert.equal(await focused(), "Skip to the ring");
  await press("ArrowRight", "ArrowRight");
  assert.equal(await title(page), "Step 2 of 3");
  await press("ArrowLeft");
  assert.equal(await title(page), "Step 1 of 3");
  await press("End");
  assert.equal(await title(page), "Result");
  await press("Home");
  assert.equal(await title(page), "Step 0 of 3");
  await press("Enter");
  assert.equal(await focused(), "ring");
  await press(" ");
  assert.equal(await page.locator("#play-label").textContent(), "Pause");
  await press(" ");
  assert.equal(await page.locator("#play-label").textContent(), "Play");

  // From the start of the page again, every stop has a visible mark.
  await page.evaluate(() => { document.activeElement.blur(); getSelection().removeAllRanges(); });
  await page.reload();
  const stops = [];
  for (let count = 0; count < 60; count += 1) {
    await press("Tab");
    const stop = await page.evaluate(() => {
      const element = document.activeElement;
      if (element === document.body) return null;
      const marked = element.matches(".segments input") ? element.nextElementSibling : element;
      return { id: element.id, name: element.name ?? "", mark: getComputedStyle(marked).outlineStyle, tag: element.tagName };
    });
    if (stop === null) break;
    assert.notEqual(stop.mark, "none", JSON.stringify(stop));
    stops.push(stop);
  }
  const ids = stops.map((stop) => stop.id);
  for (const id of ["reset", "back", "play", "step", "position", "tree-stepper-range", "tile-rank", "tile-stepper-range"]) assert.ok(ids.includes(id), id);
  for (const name of ["ranks", "layout", "mask"]) assert.ok(stops.some((stop) => stop.name === name), name);
  assert.ok(stops.filter((stop) => stop.tag === "SUMMARY").length >= 5);

  await page.locator("#ranks-4").focus();
  await press("ArrowRight");
  assert.equal(await title(page), "Step 0 of 4", "arrows choose among devices there");
  await page.locator("#step").focus();
  await press("Enter", "Enter");
  assert.equal(await title(page), "Step 2 of 4");
  assert.equal(await focused(), "step");
  await page.finish();
});
