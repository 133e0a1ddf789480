// (e) The timelines: predicted from the plan, measured from a run, on the same kind of chart.

let layer = 0;

panel(({ variant, index }) => {
  const box = byId("timelines");
  const charts = [];
  if (variant.predicted) charts.push(chartFigure(variant.predicted, variant.ranks, index));
  const { measured } = scene;
  const ran = measured && measured.layout === variant.layout;
  if (measured && !ran) {
    charts.push(html("p", { class: "muted" }, `The run was measured in the ${measured.layout} layout; choose it to see the two together.`));
  }
  if (ran && measured.layers.length > 0) {
    const chart = measured.layers[layer];
    charts.push(chartFigure(chart, variant.ranks, index, measured.layers.length > 1 ? layerChoice(measured) : null));
  }
  if (ran && measured.totals.length > 0) charts.push(totalsFigure(measured, variant.ranks), countsTable(measured));
  if (ran) charts.push(...measured.notes.map((note) => html("p", { class: "muted" }, note)));
  keepOpen(box, () => box.replaceChildren(...charts));
});

function layerChoice(measured) {
  const options = measured.layers.map((chart, at) => html("option", { value: at, selected: at === layer ? "" : null }, chart.title));
  const select = html("select", { id: "layer" }, options);
  select.addEventListener("change", () => {
    layer = Number(select.value);
    drawAll(0);
    byId("layer").focus();
  });
  return html("label", {}, "Layer ", select);
}

const LANE = { left: 52, width: 748, height: 46, top: 22 };

function chartFigure(chart, ranks, index, choice = null) {
  const height = LANE.top + chart.lanes.length * LANE.height;
  const at = (ns) => round(LANE.left + (LANE.width * ns) / Math.max(chart.end, 1));
  const name = chart.kind === "measured" ? "Measured" : "Predicted";
  const picture = svg("svg", { class: "timeline", role: "img", "aria-label": `${name} timeline. ${chart.words}`, viewBox: `0 0 ${LANE.left + LANE.width + 8} ${height + 4}` },
    svg("defs", {}, hatch(chart.kind)),
    chart.ticks.map((tick) => [
      svg("line", { class: "tick", x1: at(tick.at), x2: at(tick.at), y1: LANE.top - 6, y2: height }),
      svg("text", { class: "axis", x: at(tick.at) + 3, y: 9 }, tick.text),
    ]),
    chart.lanes.map((lane, u) => laneOf(lane, u, ranks, index, { at, kind: chart.kind })));
  const rows = chart.lanes.map(({ totals }, u) => [`rank ${u}`, totals.compute.text, totals.transfer.text, totals.transfer_wait.text, totals.peer_wait.text]);
  return html("figure", { class: "chart", "data-kind": chart.kind },
    html("h3", {}, name, html("span", { class: "badge" }, chart.end_text), choice),
    html("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${name} timeline, scrollable` }, picture),
    html("figcaption", {}, chart.title, ". ", chart.words),
    numbersOf("Times by device", `${name} times by device`, ["Device", "Computing", "Transfers in", "Waiting for transfers", "Waiting for peers"], rows),
    numbersOf("All spans", `${name} spans`, ["Span", "Starts", "Ends"], chart.lanes.flatMap((lane) => lane.bars).slice(0, 400)
      .map((bar) => [bar.words, `${bar.start} ns`, `${bar.end} ns`])));
}

const hatch = (kind) => svg("pattern", { id: `hatch-${kind}`, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
  svg("rect", { class: "hatch-back", width: 6, height: 6 }), svg("line", { class: "hatch-line", x1: 0, y1: 0, x2: 0, y2: 6 }));

const TRACKS = { compute: [4, 18], transfer: [25, 5], wait: [33, 7] };

function laneOf(lane, u, ranks, index, { at, kind }) {
  const top = LANE.top + u * LANE.height;
  const bars = lane.bars.map((bar) => {
    const [offset, height] = TRACKS[bar.track];
    const [x, width] = [at(bar.start), Math.max(round(at(bar.end) - at(bar.start)), 0.5)];
    const colored = bar.block !== null;
    return svg("g", { class: `span ${bar.kind} ${bar.step === index ? "current" : ""}`, style: colored ? rankStyle(bar.block, ranks) : null, "data-step": bar.step },
      svg("title", {}, bar.words),
      svg("rect", { x, y: top + offset, width, height, rx: 2, fill: bar.track === "wait" ? `url(#hatch-${kind})` : null }),
      bar.track === "compute" && colored && width > 18
        ? svg("text", { x: round(x + width / 2), y: top + offset + height / 2 }, width > 60 ? `block ${bar.block}` : `${bar.block}`) : null);
  });
  return svg("g", { class: "lane" },
    svg("line", { class: "lane-line", x1: 0, x2: LANE.left + LANE.width, y1: top, y2: top }),
    svg("text", { class: "lane-name", x: 0, y: top + 16 }, `rank ${u}`),
    bars);
}

// A run's report knows no moments, only sums.
function totalsFigure(measured, ranks) {
  const parts = [["compute", "attention"], ["transfer_wait", "waiting for transfers"], ["peer_wait", "waiting for peers"]];
  const sum = (totals) => parts.reduce((all, [part]) => all + totals[part].ns, 0);
  const most = Math.max(1, ...measured.totals.map(sum));
  const rows = measured.totals.map((totals, u) => html("li", { style: rankStyle(u, ranks) },
    html("span", { class: "lane-name" }, `rank ${u}`),
    html("span", { class: "stack" }, parts.map(([part, words]) =>
      html("span", { class: part, style: `width:${round((100 * totals[part].ns) / most)}%`, title: `${words}: ${totals[part].text}` })))));
  const table = measured.totals.map((totals, u) => [`rank ${u}`, ...parts.map(([part]) => totals[part].text)]);
  return html("figure", { class: "chart", "data-kind": "totals" },
    html("h3", {}, "Measured"), html("ol", { class: "totals", "aria-hidden": "true" }, rows),
    html("figcaption", {}, "Processor time of attention in the rank’s colour, then waiting, per rank and over the whole run."),
    numbersOf("Times by device", "Measured times by device", ["Device", "Attention", "Waiting for transfers", "Waiting for peers"], table));
}

function countsTable(measured) {
  const equal = measured.counts.every((count) => count.equal);
  const rows = measured.counts.map((count) => [`rank ${count.rank}`, count.what, count.measured, count.expected, count.equal ? "equal" : "DIFFERENT"]);
  const table = numbersOf("Counts of the run beside the plan’s", "Counts of the run beside the plan’s", ["Device", "Count", "Measured", "By the plan", ""], rows);
  return html("div", { class: "counts" },
    html("p", {}, html("b", {}, equal ? "The law holds. " : "The law is broken. "),
      equal ? "Every count of the run equals what its plan had said before." : "A count of the run differs from its plan."), table);
}
