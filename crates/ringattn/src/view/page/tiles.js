// (g) The tile loop of the kernel, for one device in the present step.

const tileStepper = stepper(byId("tile-stepper"), "visit", () => drawTiles(view()));
const tileRank = byId("tile-rank");
tileRank.addEventListener("change", () => { tileStepper.limit(0); drawTiles(view()); });

const { tile_loop: tileLoop } = scene;
byId("tiles-prose").textContent =
  `A device does not compute its block at once. The kernel cuts ${tileLoop.query_tile} query rows by ${tileLoop.key_tile} keys, ` +
  `keeps one such tile in cache, and touches only tiles in which the mask shows something. Drawn for ${tileLoop.tokens} tokens a device.`;

panel((now) => {
  const { ranks } = now.variant;
  if (tileRank.options.length !== ranks) {
    tileRank.replaceChildren(...Array.from({ length: ranks }, (_, u) => html("option", { value: u }, `rank ${u}`)));
    tileRank.value = `${ranks - 1}`;
  }
  drawTiles(now);
});

function drawTiles({ variant, index, frame, frames }) {
  const rank = Number(tileRank.value);
  const done = index === frames.length - 1;
  const number = done ? null : variant.tiles[rank][index];
  const { attend } = frame.ranks[rank];
  byId("tile-which").textContent = done ? "has nothing left to compute."
    : number === null ? "has nothing to attend in this step." : `attends block ${attend} in step ${index}.`;
  const pattern = number === null ? { visits: [], words: "No tile is visited." } : tileLoop.patterns[number];
  const last = Math.max(pattern.visits.length - 1, 0);
  const at = tileStepper.limit(last);
  const visit = pattern.visits[at];
  tileStepper.say(visit ? `Visit ${at + 1} of ${pattern.visits.length}` : "No visit");
  byId("tile-words").textContent = visit ? `${visit.words}. ${pattern.words}` : pattern.words;
  tilePicture(pattern, at, rankStyle(rank, variant.ranks));
}

function tilePicture(pattern, at, style) {
  const side = 300;
  const [rows, columns] = tileLoop.size;
  const [height, width] = [tileLoop.query_tile, tileLoop.key_tile].map((tile) => (side * tile) / tileLoop.tokens);
  const seen = new Map(pattern.visits.map((visit, order) => [`${visit.query} ${visit.key}`, { visit, order }]));
  const tiles = [];
  for (let query = 0; query < rows; query += 1) {
    for (let key = 0; key < columns; key += 1) {
      const found = seen.get(`${query} ${key}`);
      const kind = !found ? "skipped" : found.visit.visible >= 1 ? "full" : "edge";
      const when = !found ? "" : found.order < at ? "done" : found.order === at ? "now" : "later";
      const top = query * height;
      tiles.push(svg("rect", {
        class: `tile ${kind} ${when}`, x: round(key * width + 1), y: round(top + 0.75), width: round(width - 2),
        height: round(Math.min(height, side - top) - 1.5), rx: 2, fill: kind === "edge" ? "url(#tile-hatch)" : null,
      }));
    }
  }
  const picture = byId("tile-picture");
  picture.setAttribute("viewBox", `-22 -18 ${side + 24} ${side + 20}`);
  picture.setAttribute("style", style);
  picture.replaceChildren(picture.querySelector("title"),
    svg("defs", {}, svg("pattern", { id: "tile-hatch", width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      svg("rect", { class: "tile-hatch-back", width: 5, height: 5 }), svg("line", { class: "tile-hatch-line", x1: 0, y1: 0, x2: 0, y2: 5 }))),
    svg("text", { class: "axis", x: 0, y: -6 }, `key tiles of ${tileLoop.key_tile} →`),
    svg("text", { class: "axis", transform: "translate(-8 0) rotate(-90)", "text-anchor": "end" }, `query tiles of ${tileLoop.query_tile}`),
    ...tiles);
}
