// Making elements. Text is always text: nothing of the data becomes markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null));
  return element;
}

const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

const html = (tag, attributes = {}, ...children) =>
  fill(document.createElement(tag), attributes, children);

const byId = (id) => document.getElementById(id);

// A rank has the same colour everywhere; beyond eight, hues are spread evenly.
const NAMED_RANKS = 8;
const rankColor = (rank, ranks) =>
  ranks <= NAMED_RANKS ? `var(--rank-${rank})` : `oklch(0.66 0.12 ${(360 * rank) / ranks})`;
const rankInk = (rank, ranks) => (ranks <= NAMED_RANKS ? `var(--ink-${rank})` : "#111");
const rankStyle = (rank, ranks) =>
  `--fill:${rankColor(rank, ranks)};--on:${rankInk(rank, ranks)}`;

// A table from a caption, column heads and rows whose first cell is the row's head.
function fillTable(table, caption, heads, rows) {
  table.replaceChildren(
    html("caption", {}, caption),
    html("thead", {}, html("tr", {}, heads.map((head) => html("th", { scope: "col" }, head)))),
    html("tbody", {}, rows.map(([head, ...cells]) =>
      html("tr", {}, html("th", { scope: "row" }, head), cells.map((cell) => html("td", {}, cell))))),
  );
}

// The numbers behind a picture, folded away.
function numbersOf(summary, caption, heads, rows) {
  const table = html("table");
  fillTable(table, caption, heads, rows);
  const scroll = html("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, table);
  return html("details", { class: "numbers" }, html("summary", {}, summary), scroll);
}

// Keeps a details element open when its panel is drawn anew.
function keepOpen(container, draw) {
  const open = [...container.querySelectorAll("details")].map((details) => details.open);
  draw();
  container.querySelectorAll("details").forEach((details, index) => { details.open = open[index] ?? false; });
}

const point = (radius, turn) => [
  200 + radius * Math.sin(2 * Math.PI * turn),
  200 - radius * Math.cos(2 * Math.PI * turn),
];

// An arc of a circle around (x, y), from turn to turn, clockwise from the top.
function arc(x, y, radius, from, to) {
  const at = (turn) => [x + radius * Math.sin(2 * Math.PI * turn), y - radius * Math.cos(2 * Math.PI * turn)];
  const [start, end] = [at(from), at(to)];
  const large = to - from > 0.5 ? 1 : 0;
  return `M${start.map(round)} A${radius} ${radius} 0 ${large} 1 ${end.map(round)}`;
}

const round = (number) => Math.round(number * 100) / 100;
