// Pages of plans, reports and traces: what was read is what is shown.

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { launch, open, ringattn, ROOT, sandbox, snapshot } from "./support.mjs";

let browser;
const files = sandbox();
before(async () => { browser = await launch(); });
after(async () => {
  await browser.close();
  files.remove();
});

const view = async (name, options) => {
  ringattn("view", files.path(name), "--out", files.path(`${name}.html`));
  return open(browser, files.path(`${name}.html`), options);
};

const rows = (page, caption) => page.evaluate((caption) => {
  const table = [...document.querySelectorAll("table")].find((each) => each.caption?.textContent === caption);
  return [...table.tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.textContent));
}, caption);

// The numbers of a text with a unit, in the unit's base.
function base(text) {
  const [, number, unit] = /^([\d. ]+?)\s*(\D*)$/u.exec(text.replaceAll("\u202f", "")) ?? [];
  const scale = { "": 1, B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, ns: 1, µs: 1e3, ms: 1e6, s: 1e9 }[unit];
  return Number(number) * scale;
}
const near = (text, value) => assert.ok(Math.abs(base(text) - value) <= 0.006 * value + 1e-9, `${text} for ${value}`);

test("a plan is shown as the command prints it", async () => {
  for (const p of [2, 3, 5, 8]) {
    for (const [layout, mask] of [["contiguous", "causal"], ["zigzag", "causal"], ["striped", "full"]]) {
      const args = ["plan", "--q-heads", "8", "--kv-heads", "2", "--head-dim", "64", "--tokens", `${1000 * p + 1}`, "--ranks", `${p}`, "--mask", mask, "--layout", layout];
      const plan = JSON.parse(ringattn(...args, "--json"));
      writeFileSync(files.path("plan.json"), JSON.stringify(plan));
      const grid = gridOf(ringattn(...args, "--grid"), p);
      const page = await view("plan.json");
      assert.equal(await page.locator("#layouts input:checked").inputValue(), layout);
      for (let step = 0; step < p; step += 1) {
        const shown = await snapshot(page);
        assert.deepEqual(shown.table.map((row) => row[3]), grid.map((row) => row[step] ?? "nothing"), `${layout} ${p} step ${step}`);
        assert.deepEqual(shown.holding.map((row) => row.flatMap((cell, block) => (cell.startsWith("now") ? [`${block}`] : []))),
          grid.map((row) => (row[step] === null ? [] : [row[step]])));
        await page.locator("#step").click();
      }
      const end = await snapshot(page);
      const [priced] = plan.layouts;
      assert.equal(end.readouts.resident.value, priced.resident_kv_bytes);
      assert.equal(end.readouts.hops.value, Math.max(...end.table.map((_, rank) => grid[rank].slice(1).length && hopsOf(grid, rank, p))));
      assert.equal(end.readouts.pairs.text, "100 %");
      assert.equal(await page.locator('figure.chart[data-kind="predicted"]').count(), 1);
      await page.finish();
    }
  }
});

// A row of blocks per rank from the printed grid; a block that is only passed on counts as none attended.
function gridOf(text, p) {
  const lines = text.split("\n").filter((line) => /^ *\d+ \|/.test(line)).slice(0, p);
  return lines.map((line) => line.split("|")[1].trim().split(/\s+/).map((cell) => (/^\d+$/.test(cell) ? cell : null)));
}

// Blocks that a rank received by the grid: those it attends or passes on after step 0.
const hopsOf = (grid, rank, p) => grid[rank].slice(1, p).filter((cell) => cell !== null).length;

test("a report's sums and counts are shown beside the plan", async () => {
  const input = join(ROOT, "fixtures/gpl3-layer15-512.safetensors");
  for (const [p, layout] of [[1, "striped"], [2, "contiguous"], [4, "zigzag"]]) {
    ringattn("attend", input, "--mask", "causal", "--ranks", `${p}`, "--layout", layout, "--out", files.path("out"), "--report", files.path("run.json"));
    const report = JSON.parse(readFileSync(files.path("run.json"), "utf8"));
    const page = await view("run.json");
    const times = await rows(page, "Measured times by device");
    report.per_rank.forEach((rank, u) => {
      assert.equal(times[u][0], `rank ${u}`);
      [rank.attention_s, rank.transfer_wait_s, rank.peer_wait_s].forEach((seconds, i) => near(times[u][i + 1], Math.round(seconds * 1e9)));
    });
    const counts = await rows(page, "Counts of the run beside the plan’s");
    const names = { pairs: "pairs", "resident K,V": "resident_kv_bytes", "peak K,V": "peak_kv_bytes", received: "received_bytes", hops: "hops" };
    assert.equal(counts.length, 5 * p);
    for (const [rank, what, measured, expected, verdict] of counts) {
      const entry = report.per_rank[Number(rank.slice(5))];
      near(measured, entry[names[what]]);
      near(expected, entry[`${names[what]}_expected`]);
      assert.equal(verdict, "equal");
    }
    // The ring that is drawn ends with the counts of the run.
    await page.keyboard.press("End");
    const { readouts } = await snapshot(page);
    const sum = (name) => report.per_rank.reduce((all, rank) => all + rank[name], 0);
    assert.equal(readouts.moved.value, sum("received_bytes"));
    assert.equal(readouts.pairs.value, sum("pairs"));
    assert.equal(readouts.hops.value, Math.max(...report.per_rank.map((rank) => rank.hops)));
    assert.equal(readouts.resident.value, Math.max(...report.per_rank.map((rank) => rank.resident_kv_bytes)));
    if (p > 1) {
      await page.locator("label:has(#layout-striped)").click();
      assert.ok((await page.locator("#timelines").textContent()).includes(`measured in the ${layout} layout`));
    }
    await page.finish();
  }
});

const HEADLINE = { command: "attend", ranks: 2, layout: "striped", block: 1, schedule: "ring-pass-kv", mask: "causal", layers: 2, tokens: 8, q_heads: 2, kv_heads: 1, head_dim: 4, kv_dtype: "f32" };

// A trace of two ranks and two layers, every span known.
function trace() {
  const event = (name, pid, ts, dur, args) => ({ ph: "X", name, pid, tid: 1, ts, dur, args });
  const events = [{ ph: "M", name: "process_name", pid: 0, args: { name: "rank 0" } }];
  for (const layer of [0, 1]) {
    const at = 1000 + layer * 100;
    for (const rank of [0, 1]) {
      const peer = 1 - rank;
      events.push(
        event("attend", rank, at, 20, { layer, step: 0, block: rank, pairs: 10, flops: 320 }),
        event("receive", rank, at, 25, { layer, step: 0, block: peer, peer, bytes: 128 }),
        event("wait", rank, at + 20, 5, { layer, step: 0, peer, cause: "transfer" }),
        event("attend", rank, at + 25, 10 + layer, { layer, step: 1, block: peer, pairs: 10, flops: 320 }),
      );
    }
  }
  return { traceEvents: events, displayTimeUnit: "ns", otherData: { schema: "ringattn.trace/1", ...HEADLINE } };
}

test("a trace is drawn span by span, beside its prediction", async () => {
  writeFileSync(files.path("trace.json"), JSON.stringify(trace()));
  const page = await view("trace.json");
  const measured = page.locator('figure.chart[data-kind="measured"]');
  assert.equal(await page.locator('figure.chart[data-kind="predicted"]').count(), 1);
  const spans = (await rows(page, "Measured spans")).map(([words, start, end]) => `${words} | ${start} | ${end}`);
  const ofRank = (rank) => [
    `rank ${rank}, step 0: attends block ${rank}, 20 µs | 0 ns | 20000 ns`,
    `rank ${rank}, step 1: attends block ${1 - rank}, 10 µs | 25000 ns | 35000 ns`,
    `rank ${rank}, step 0: block ${1 - rank} from rank ${1 - rank}, 25 µs | 0 ns | 25000 ns`,
    `rank ${rank}, step 0: waits for a transfer from rank ${1 - rank}, 5 µs | 20000 ns | 25000 ns`,
  ];
  assert.deepEqual(spans, [...ofRank(0), ...ofRank(1)]);
  assert.deepEqual((await rows(page, "Measured times by device"))[1], ["rank 1", "30 µs", "25 µs", "5 µs", "0 ns"]);
  const current = () => measured.locator(".span.current").count();
  assert.equal(await current(), 6, "both attend, receive and wait in step 0");
  await page.locator("#step").click();
  assert.equal(await current(), 2);
  await measured.locator("select").selectOption("1");
  assert.equal((await rows(page, "Measured spans"))[1][0], "rank 0, step 1: attends block 1, 11 µs");
  assert.equal(await measured.locator(".badge").textContent(), "36 µs");
  await page.finish();
});

test("foreign text in a file stays text", async () => {
  const evil = trace();
  evil.otherData.command = '</script><img src=x onerror="document.title=1">';
  evil.traceEvents.push({ ph: "X", name: "<script>alert(1)</script>", pid: 0, ts: 0, dur: 1, args: {} });
  writeFileSync(files.path("evil.json"), JSON.stringify(evil));
  const page = await view("evil.json");
  assert.equal(await page.locator("img:not(svg)").count(), 0);
  assert.match(await page.title(), /^A measured run: striped over 2 ranks/);
  await page.finish();
  const report = { ...HEADLINE, schema: "ringattn.report/1", layers: 1, ranks: 1, command: evil.otherData.command, overlap: { transfer_s: 0 }, per_rank: [] };
  const counts = ["pairs", "resident_kv_bytes", "peak_kv_bytes", "received_bytes", "hops"];
  report.per_rank.push(Object.assign({ rank: 0, attention_s: 1, transfer_wait_s: 0, peer_wait_s: 0 }, ...counts.flatMap((name) => [{ [name]: 1 }, { [`${name}_expected`]: 2 }])));
  writeFileSync(files.path("evil.json"), JSON.stringify(report));
  const other = await view("evil.json");
  assert.equal(await other.locator("main img, header img").count(), 0);
  assert.ok((await other.locator("#title").textContent()).includes("</script><img src=x"));
  assert.ok((await other.locator(".counts").textContent()).includes("The law is broken."));
  await other.finish();
});

test("a ring of 32 devices fits, with all its numbers", async () => {
  ringattn("plan", "--q-heads", "32", "--head-dim", "128", "--tokens", "1G", "--ranks", "32", "--window", "4096,0", "--json");
  writeFileSync(files.path("large.json"), ringattn("plan", "--q-heads", "32", "--head-dim", "128", "--tokens", "1G", "--ranks", "32", "--window", "4096,0", "--json"));
  for (const width of [360, 1280]) {
    const page = await view("large.json", { viewport: { width, height: 800 } });
    assert.equal(await page.locator(".device").count(), 32);
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth), 0);
    await page.keyboard.press("End");
    assert.equal((await snapshot(page)).readouts.pairs.text, "100 %");
    await page.finish();
  }
});
