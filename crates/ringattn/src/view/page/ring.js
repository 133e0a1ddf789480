// (a) The ring: devices on a circle, the visiting K,V blocks on a smaller one inside it.

const RING = { device: 146, travel: 850 };

// From so many devices on there is room for numbers only.
const CROWD = 13;
const orbitRadius = (ranks) => (ranks < CROWD ? 78 : 116);

const deviceRadius = (ranks) => Math.min(42, (Math.PI * RING.device * 0.64) / ranks);

panel(({ variant, frame, index, frames, moved }) => {
  const ranks = variant.ranks;
  const picture = byId("ring-picture");
  const title = picture.querySelector("title");
  picture.replaceChildren(
    title,
    svg("circle", { class: "track", cx: 200, cy: 200, r: RING.device }),
    ...arrows(ranks),
    ...frame.ranks.map((rank, u) => link(rank, u, ranks)),
    ...frame.ranks.map((rank, u) => device(variant, rank, u, index)),
    ...frame.ranks.flatMap((rank, u) => blocks(variant, frames, index, u, moved)),
    ...center(frame, index, variant, frames.length - 1),
  );
  byId("ring-words").textContent = frame.words;
  fillRingTable(variant, frame);
});

// The sequence as the layout deals it out.
panel(({ variant }) => {
  const { owner } = variant.grid;
  const cell = 400 / owner.length;
  const picture = byId("sequence-picture");
  picture.setAttribute("viewBox", "0 0 400 18");
  picture.replaceChildren(...owner.map((rank, position) => svg("rect", {
    style: rankStyle(rank, variant.ranks), class: "token", x: round(position * cell), y: 0, width: round(cell - Math.min(1.5, cell / 6)), height: 18, rx: 2,
  })));
  byId("sequence-words").textContent = `The sequence, ${variant.layout_text}: each token in the colour of the device that owns it.`;
});

function arrows(ranks) {
  if (ranks === 1) return [];
  return Array.from({ length: ranks }, (_, u) => {
    const turn = (u + 0.5) / ranks;
    const [x, y] = point(RING.device, turn);
    return svg("path", {
      class: "arrow", d: "M-4 -5 L4 0 L-4 5", transform: `translate(${round(x)} ${round(y)}) rotate(${round(360 * turn)})`,
    });
  });
}

// A device: a disk in its colour, and around it one segment per slice, filled once absorbed.
function device(variant, rank, u, index) {
  const ranks = variant.ranks;
  const [x, y] = point(RING.device, u / ranks);
  const radius = deviceRadius(ranks);
  const gap = ranks > 16 ? 0 : 0.012;
  const segments = variant.walk.absorbed_in[u].map((step, slice) => {
    const filled = step !== null && step <= index;
    return svg("path", {
      class: `segment ${filled ? "absorbed" : step === null ? "never" : ""}`,
      style: filled ? rankStyle(slice, ranks) : null,
      d: ranks === 1 ? arc(x, y, radius + 4, 0, 0.999) : arc(x, y, radius + 4, slice / ranks + gap, (slice + 1) / ranks - gap),
    });
  });
  const busy = rank.attend !== null;
  const result = rank.label === "done";
  return svg("g", { class: `device ${busy || result ? "" : "idle"}`, style: rankStyle(u, ranks), "data-rank": u },
    svg("circle", { class: "disk", cx: round(x), cy: round(y), r: round(radius) }),
    segments,
    ranks >= CROWD
      ? svg("text", { x: round(x), y: round(y), class: "device-name small" }, `${u}`)
      : [svg("text", { x: round(x), y: round(y - 6), class: "device-name" }, `rank ${u}`),
         svg("text", { x: round(x), y: round(y + 11), class: `device-work ${rank.label.length > 10 ? "long" : ""}` }, rank.label)],
  );
}

// A line from a device to the block that it attends.
function link(rank, u, ranks) {
  if (rank.attend === null) return svg("g");
  const [[x1, y1], [x2, y2]] = [point(RING.device, u / ranks), point(orbitRadius(ranks), u / ranks)];
  return svg("line", {
    class: "link", style: rankStyle(rank.attend, ranks),
    x1: round(x1), y1: round(y1), x2: round(x2), y2: round(y2),
  });
}

// The K,V blocks before a device: in step 0 its own, later the one that visits.
function blocks(variant, frames, index, u, moved) {
  const ranks = variant.ranks;
  const rank = frames[index].ranks[u];
  const shown = index === 0 ? rank.held : rank.held.filter((block) => block !== u);
  return shown.map((block) => {
    const [x, y] = point(orbitRadius(ranks), u / ranks);
    const passing = rank.attend !== block;
    const [width, height] = ranks < CROWD ? [48, 24] : [16, 14];
    const chip = svg("g", { class: `chip ${passing ? "passing" : ""}`, style: rankStyle(block, ranks), "data-block": block, "data-at": u },
      svg("rect", { x: round(x - width / 2), y: round(y - height / 2), width, height, rx: height / 3 }),
      svg("text", { x: round(x), y: round(y), class: ranks < CROWD ? null : "small" }, ranks < CROWD ? `K,V ${block}` : `${block}`));
    const orbit = svg("g", { class: "orbit" }, chip);
    if (Math.abs(moved) === 1 && index > 0) travel(orbit, chip, [x, y], -moved / ranks);
    if (index === 0 && moved === -1) travel(orbit, chip, [x, y], 1 / ranks);
    return orbit;
  });
}

// Lets a block arrive from the neighbour: the orbit turns around the centre, the block stays upright.
function travel(orbit, chip, [x, y], turn) {
  if (calm.matches) return;
  const timing = { duration: RING.travel, easing: "cubic-bezier(0.45, 0, 0.2, 1)" };
  orbit.style.transformOrigin = "200px 200px";
  chip.style.transformOrigin = `${x}px ${y}px`;
  orbit.animate([{ transform: `rotate(${turn}turn)` }, { transform: "rotate(0)" }], timing);
  chip.animate([{ transform: `rotate(${-turn}turn)` }, { transform: "rotate(0)" }], timing);
}

function center(frame, index, variant, last) {
  if (variant.ranks >= CROWD) return [svg("text", { x: 200, y: 200, class: "center-step" }, index === last ? "result" : `${index}`)];
  if (index === last) return [
    svg("text", { x: 200, y: 194, class: "center-step" }, "done"),
    svg("text", { x: 200, y: 218, class: "center-rule" }, "out = y / z"),
  ];
  return [
    svg("text", { x: 200, y: 190, class: "center-step" }, `step ${index}`),
    svg("text", { x: 200, y: 214, class: "center-rule" }, `(u − ${index}) mod ${variant.ranks}`),
  ];
}

function fillRingTable(variant, frame) {
  const move = (transfer, word) => (transfer ? `block ${transfer.block} ${word} rank ${transfer.peer}` : "nothing");
  const rows = frame.ranks.map((rank, u) => [
    `rank ${u}`, variant.walk.shards[u].positions, rank.held.join(", "), rank.attend ?? "nothing",
    `${rank.pairs}`, move(rank.send, "to"), move(rank.receive, "from"), rank.drop ?? "nothing",
  ].map(String));
  const heads = ["Device", "Owns positions", "Holds blocks", "Attends", "Pairs", "Sends", "Receives", "Then drops"];
  fillTable(byId("ring-table"), `${frame.title}, ${variant.layout_text}, mask ${variant.mask}`, heads, rows);
}
