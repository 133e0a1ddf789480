// Every ring of the teaching mode, every layout and mask, every step: what is shown is what the
// definitions say.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { BLOCK_BYTES, LAYOUTS, ring } from "./oracle.mjs";
import { launch, open, ringattn, sandbox, snapshot } from "./support.mjs";

let browser;
let page;
const files = sandbox();

before(async () => {
  ringattn("view", "--out", files.path("teach.html"));
  browser = await launch();
  page = await open(browser, files.path("teach.html"));
});

after(async () => {
  await page.finish();
  await browser.close();
  files.remove();
});

const range = (length) => Array.from({ length }, (_, index) => index);
const plural = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

// What a frame must show; frame `p` is the result.
function expected(layout, mask, p, index) {
  const plan = ring(layout, mask, p);
  const done = index === p;
  const now = done ? null : plan.steps[index];
  const passed = plan.steps.slice(0, index);
  const work = (rank) => {
    if (done) return "done";
    const { attend, pairs, sends } = now[rank];
    return attend !== null ? plural(pairs, "pair") : sends ? "passes on" : "idle";
  };
  const kind = (step) => (step > index ? "later" : step === index ? "now" : "done");
  const cell = (rank, block) => {
    const step = plan.stepOf(rank, block);
    if (plan.pairs[rank][block] === 0) return "never ·";
    return step > index ? "wait" : step === index ? `now ${step}` : `done ${step}`;
  };
  const visiting = (rank) => (done || index === 0 || !now[rank].here ? [] : [now[rank].block]);
  const chips = done ? [] : range(p).flatMap((rank) =>
    (index === 0 ? [rank] : visiting(rank)).map((block) => ({ block, at: rank, passing: now[rank].attend !== block, text: `K,V ${block}` })));
  return { plan, done, now, passed, work, kind, cell, visiting, chips };
}

function checkRing(shown, { plan, done, now, work, chips, cell, visiting }, p, index) {
  assert.equal(shown.position, index);
  assert.equal(shown.title, done ? "Result" : `Step ${index} of ${p - 1}`);
  assert.equal(shown.center, done ? "done" : `step ${index}`);
  assert.equal(shown.live, shown.caption);
  assert.match(shown.live, done ? new RegExp(`^Done after ${p} steps`) : new RegExp(`^Step ${index}: `));
  assert.deepEqual(shown.devices, range(p).map((rank) => ({
    rank, work: work(rank), idle: !done && now[rank].attend === null,
    absorbed: range(p).map((block) => plan.pairs[rank][block] > 0 && plan.stepOf(rank, block) <= index),
  })));
  assert.deepEqual(shown.chips, chips);
  assert.deepEqual(shown.holding, range(p).map((rank) => range(p).map((block) => cell(rank, block))));
  for (const rank of range(p)) {
    const [name, , holds, attends, pairs, sends, receives] = shown.table[rank];
    assert.equal(name, `rank ${rank}`);
    assert.equal(holds, [rank, ...visiting(rank)].join(", "));
    if (done) continue;
    assert.equal(attends, now[rank].attend === null ? "nothing" : `${now[rank].attend}`);
    assert.equal(pairs, `${now[rank].pairs}`);
    assert.equal(sends, now[rank].sends ? `block ${now[rank].block} to rank ${(rank + 1) % p}` : "nothing");
    const left = (rank + p - 1) % p;
    assert.equal(receives, now[left].sends ? `block ${now[left].block} from rank ${left}` : "nothing");
    if (now[rank].attend !== null) assert.ok(shown.live.includes(`rank ${rank} attends block ${now[rank].attend}`), shown.live);
  }
}

function checkReadouts({ readouts }, { plan, done, now, passed, visiting }, p, index) {
  const received = range(p).map((rank) => passed.filter((step) => step[(rank + p - 1) % p].sends).length);
  const held = range(p).map((rank) => 1 + visiting(rank).length + (!done && now[(rank + p - 1) % p].sends ? 1 : 0));
  const pairs = plan.steps.slice(0, index + 1).flat().reduce((sum, rank) => sum + rank.pairs, 0);
  const value = Object.fromEntries(Object.entries(readouts).map(([id, readout]) => [id, readout.value]));
  const most = Math.max(...received);
  assert.deepEqual(value, {
    step: index, resident: BLOCK_BYTES, held: BLOCK_BYTES * Math.max(...held),
    moved: BLOCK_BYTES * received.reduce((a, b) => a + b), hops: most, pairs,
  });
  assert.equal(readouts.resident.text, "16 KiB");
  assert.ok(readouts.resident.detail.startsWith(`L/p = 4 of ${4 * p} tokens`));
  assert.equal(readouts.hops.text, `${most} of ${p - 1}`);
  assert.equal(readouts.hops.detail, `full coverage takes p − 1 = ${p - 1}`);
  assert.ok(held.every((blocks) => blocks <= 3));
  if (done) assert.equal(readouts.pairs.text, "100 %");
}

function checkGrids({ grids, strip }, chosen, mask, p, index) {
  assert.deepEqual(Object.keys(grids), LAYOUTS);
  for (const layout of LAYOUTS) {
    const { plan, kind } = expected(layout, mask, p, index);
    const grid = grids[layout];
    const cells = plan.owner.flatMap((rank, query) => plan.owner.map((block, key) =>
      (plan.visible(query, key) ? kind(plan.stepOf(rank, block)) : "hidden-pair")));
    assert.deepEqual(grid.cells, cells, layout);
    assert.equal(grid.chosen, layout === chosen);
    const byStep = range(p).map((rank) => range(p).map((step) => plan.steps[step][rank].pairs));
    assert.deepEqual(grid.bars, byStep.map((row) => row[index] ?? 0));
    const sums = byStep.map((row) => row.reduce((a, b) => a + b));
    assert.deepEqual(grid.table, byStep.map((row, rank) => [`rank ${rank}`, ...row.map(String), `${sums[rank]}`]));
    const slowest = range(p).map((step) => Math.max(...byStep.map((row) => row[step]))).reduce((a, b) => a + b);
    const share = (100 * sums.reduce((a, b) => a + b)) / (p * slowest);
    assert.equal(grid.share, `${share.toFixed(1).replace(/\.0$/, "")} %`);
    if (layout === chosen) {
      assert.deepEqual(strip.map((style) => Number(/rank-(\d)/.exec(style)[1])), plan.owner);
    }
  }
}

for (const p of [2, 3, 4, 5, 6, 7, 8]) {
  test(`rings of ${p} show the plan in every step`, async () => {
    await page.locator(`#ranks label:has(#ranks-${p})`).click();
    for (const mask of ["full", "causal"]) {
      await page.locator(`label:has(#mask-${mask})`).click();
      for (const layout of LAYOUTS) {
        await page.locator(`label:has(#layout-${layout})`).click();
        if (await page.locator("#reset").isEnabled()) await page.locator("#reset").click();
        for (const index of range(p + 1)) {
          const shown = await snapshot(page);
          const wanted = expected(layout, mask, p, index);
          checkRing(shown, wanted, p, index);
          checkReadouts(shown, wanted, p, index);
          checkGrids(shown, layout, mask, p, index);
          if (index < p) await page.locator("#step").click();
        }
      }
    }
  });
}

test("the rings differ where the layouts do", () => {
  // Guards the oracle itself: the closed forms for a causal mask, n tokens a rank.
  const [n, p] = [4, 8];
  const totals = (layout) => ring(layout, "causal", p).pairs.map((row) => row.reduce((a, b) => a + b));
  assert.deepEqual(totals("contiguous"), range(p).map((r) => n * n * r + (n * (n + 1)) / 2));
  assert.deepEqual(totals("striped"), range(p).map((r) => (p * n * (n - 1)) / 2 + (r + 1) * n));
  assert.deepEqual(totals("zigzag"), range(p).map(() => (n * (p * n + 1)) / 2));
});
