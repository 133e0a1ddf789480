// How the page looks and sounds: dark, on paper, on a phone, to a screen reader.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
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

const overflow = (page) => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);

test("nothing is wider than a phone, a tablet or a screen", async () => {
  for (const width of [360, 412, 768, 1024, 1920]) {
    const page = await start({ viewport: { width, height: 740 } });
    for (const p of [2, 4, 8]) {
      await page.locator(`label:has(#ranks-${p})`).click();
      await page.locator("label:has(#mask-causal)").click();
      await page.evaluate(() => document.querySelectorAll("details").forEach((details) => { details.open = true; }));
      assert.equal(await overflow(page), 0, `${width} pixels, ${p} devices`);
    }
    await page.finish();
  }
});

test("on a phone the controls leave room and can be touched", async () => {
  const page = await start({ viewport: { width: 360, height: 740 } });
  const height = await page.locator("#controls").evaluate((box) => box.getBoundingClientRect().height);
  assert.ok(height < 0.36 * 740, `${height} pixels of controls`);
  for (const id of ["reset", "back", "play", "step"]) {
    const box = await page.locator(`#${id}`).boundingBox();
    assert.ok(box.width >= 40 && box.height >= 36, id);
  }
  await page.finish();
});

// Contrast by the rule of WCAG 2: relative luminance of text over what it stands on.
const contrast = (page, pairs) => page.evaluate((pairs) => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const luminance = (color) => {
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((value) => value / 255)
      .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const style = getComputedStyle(document.documentElement);
  return pairs.map(([text, ground]) => {
    const [a, b] = [text, ground].map((name) => luminance(style.getPropertyValue(name))).sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
  });
}, pairs);

test("text can be read in light and dark, on every rank's colour", async () => {
  const ranks = Array.from({ length: 8 }, (_, rank) => [`--ink-${rank}`, `--rank-${rank}`]);
  const pairs = [["--ink", "--paper"], ["--soft", "--paper"], ["--ink", "--panel"], ["--soft", "--panel"], ...ranks];
  for (const colorScheme of ["light", "dark"]) {
    const page = await start({ colorScheme });
    (await contrast(page, pairs)).forEach((ratio, i) => assert.ok(ratio >= 4.5, `${colorScheme} ${pairs[i]}: ${ratio.toFixed(2)}`));
    const paper = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    assert.equal(paper, colorScheme === "dark" ? "rgb(21, 22, 26)" : "rgb(250, 249, 246)");
    await page.finish();
  }
});

test("it prints without the controls and within the paper", async () => {
  const page = await start();
  await page.emulateMedia({ media: "print" });
  assert.equal(await page.locator("#controls").isVisible(), false);
  assert.equal(await page.locator("#ring-picture").isVisible(), true);
  await page.setViewportSize({ width: 700, height: 1000 });
  assert.equal(await overflow(page), 0);
  const pdf = await page.pdf({ format: "A4" });
  const pages = pdf.toString("latin1").match(/\/Type\s*\/Page\b/g).length;
  assert.ok(pages >= 2 && pages <= 8, `${pages} pages`);
  await page.finish();
});

test("a screen reader finds names for everything, and hears each step", async () => {
  const page = await start();
  await page.locator("#step").click();
  const tree = await page.locator("body").ariaSnapshot();
  for (const wanted of [
    'heading "Ring attention, step by step" [level=1]', 'button "Play"', 'button "Step"', 'button "Back"', 'button "Reset"',
    'group "Devices"', 'radio "4" [checked]', 'group "Layout"', 'radio "contiguous" [checked]', 'group "Mask"',
    'img /Devices on a ring Step 1: rank 0 attends block 3/', 'status: /Step 1: /', 'img /contiguous: who computes which pair, up to step 1/',
    'img /Predicted timeline/', 'img /Tree of merges/', 'slider "Level of the tree"', 'combobox "Device"', 'region "Holding matrix"',
    'rowheader "rank 2"', 'math',
  ]) {
    const pattern = /\/(.*)\//.exec(wanted);
    const found = pattern
      ? new RegExp(`${wanted.slice(0, wanted.indexOf("/")).trim().replace(/[[\]()]/g, "\\$&")} ?"?${pattern[1]}`).test(tree)
      : tree.includes(wanted);
    assert.ok(found, `${wanted} in\n${tree.slice(0, 6000)}`);
  }
  const unnamed = await page.evaluate(() => [...document.querySelectorAll("button, input, select, svg[role=img], [role=region], [role=group]")]
    .filter((element) => {
      const named = element.getAttribute("aria-label") || (element.getAttribute("aria-labelledby") ?? "").split(" ").some((id) => document.getElementById(id)?.textContent);
      return !named && !element.textContent.trim() && !element.labels?.length;
    }).map((element) => element.outerHTML.slice(0, 100)));
  assert.deepEqual(unnamed, []);
  await page.finish();
});

test("the file is whole: no address in it leads anywhere", () => {
  const text = readFileSync(files.path("teach.html"), "utf8");
  const links = text.match(/(?:href|src)="[^"]*"/g);
  assert.deepEqual(links, ['href="data:,"', 'href="#ring"']);
  assert.deepEqual(text.match(/https?:\/\/[^"'\s<]*/g), ["http://www.w3.org/2000/svg"], "a namespace, which nobody asks for");
  assert.ok(text.includes("default-src 'none'"));
});
