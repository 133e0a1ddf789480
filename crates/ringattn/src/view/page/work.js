// (d) The work grids of the three layouts, side by side.

panel(({ variant, index }) => {
  const same = scene.variants.filter((v) => v.ranks === variant.ranks && v.mask === variant.mask);
  const grids = byId("grids");
  keepOpen(grids, () => grids.replaceChildren(...same.map((v) => workFigure(v, index, v === variant))));
});

function workFigure(variant, index, chosen) {
  const { grid, ranks, layout } = variant;
  const name = `${layout}: who computes which pair, up to ${index < ranks ? `step ${index}` : "the end"}`;
  return html("figure", { class: `grid ${chosen ? "chosen" : ""}`, "data-layout": layout },
    html("h3", {}, layout, chosen ? html("span", { class: "badge" }, "shown above") : null),
    workPicture(grid, ranks, index, name),
    stepBars(grid, ranks, index),
    html("figcaption", {}, html("b", { class: "big" }, grid.utilization), ` of the ranks’ time is work. `, html("span", { class: "muted" }, grid.words)),
    numbersOf("Pairs by step", `Pairs by rank and step, ${layout}`,
      ["Device", ...grid.pairs.map((_, step) => `Step ${step}`), "All"],
      grid.pairs.map((row, u) => [`rank ${u}`, ...row.map(String), `${grid.totals[u]}`])));
}

function workPicture(grid, ranks, index, name) {
  const [side, edge] = [300, 14];
  const cell = (side - edge) / Math.max(grid.steps.length, 1);
  const label = cell >= 13;
  const picture = svg("svg", { class: "work", role: "img", "aria-label": `${name}. ${grid.words}`, viewBox: `0 0 ${side} ${side}` });
  grid.steps.forEach((row, query) => {
    const [y, owner] = [edge + query * cell, grid.owner[query]];
    picture.append(svg("rect", { class: "owner", style: rankStyle(owner, ranks), x: 0, y: round(y), width: edge - 5, height: round(cell - 0.6) }));
    row.forEach((step, key) => {
      const x = edge + key * cell;
      const kind = step === null ? "hidden-pair" : step > index ? "later" : step === index ? "now" : "done";
      picture.append(svg("rect", {
        class: `pair ${kind}`, style: step === null ? null : rankStyle(owner, ranks),
        x: round(x), y: round(y), width: round(cell - 0.6), height: round(cell - 0.6), rx: cell > 8 ? 1.5 : 0,
        "data-query": query, "data-key": key,
      }));
      if (label && step !== null) picture.append(svg("text", {
        class: `pair-step ${kind}`, style: rankStyle(owner, ranks), x: round(x + cell / 2 - 0.3), y: round(y + cell / 2),
      }, `${step}`));
    });
  });
  picture.append(
    svg("text", { class: "axis", x: edge, y: 7 }, "keys →"),
  );
  return picture;
}

// The pairs of each rank in this step: the longest bar is what the others wait for.
function stepBars(grid, ranks, index) {
  const most = Math.max(1, ...grid.pairs.flat());
  const bars = grid.pairs.map((row, u) => {
    const pairs = index < row.length ? row[index] : 0;
    return html("li", { style: rankStyle(u, ranks) },
      html("span", { class: "bar", style: `width:${round((100 * pairs) / most)}%`, "aria-hidden": "true" }),
      html("span", { class: "bar-text" }, html("span", { class: "hidden" }, `rank ${u}: `), `${pairs}`));
  });
  const words = index < ranks ? `Pairs in step ${index}` : "No pairs are left";
  return html("div", { class: "step-bars" }, html("p", { class: "muted" }, words), html("ol", { "aria-label": words }, bars));
}
