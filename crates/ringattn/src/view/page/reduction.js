// (f) The tree reduction, level by level, with its numbers.

const treeStepper = stepper(byId("tree-stepper"), "level", () => drawTree(view()));

panel((now) => drawTree(now));

function drawTree({ variant }) {
  const reduction = scene.reductions.find((each) => each.ranks === variant.ranks);
  const last = reduction.levels.length - 1;
  const at = treeStepper.limit(last);
  const level = reduction.levels[at];
  treeStepper.say(`Level ${at} of ${last}`);
  byId("tree-words").textContent = level.words;
  treePicture(reduction, at);
  const result = at === last
    ? html("article", { class: "state result" }, html("h3", {}, "Result"),
        number("out = y / z", reduction.out.map((each) => each.text).join(", ")), number("lse = m + ln z", reduction.lse.text))
    : null;
  byId("tree-states").replaceChildren(...level.states.map((each) => stateCard(each, variant.ranks)), ...(result ? [result] : []));
}

function number(name, text) {
  return html("p", { class: "number" }, html("span", {}, name), html("b", {}, text));
}

function stateCard(each, ranks) {
  const merge = each.merge;
  const covers = each.covers.length === 1 ? `keys of rank ${each.covers[0]}` : `keys of ranks ${each.covers.join(", ")}`;
  return html("article", { class: `state ${merge ? "merged" : ""}`, style: rankStyle(each.rank, ranks), "data-rank": each.rank },
    html("h3", {}, html("span", { class: "dot" }), `rank ${each.rank}`, html("small", {}, covers)),
    number("m", each.m.text), number("z", each.z.text), number("y", `(${each.y.map((y) => y.text).join(", ")})`),
    merge ? html("p", { class: "weights" }, `own sums × ${merge.own_weight.text}, those of rank ${merge.from} × ${merge.other_weight.text}`) : null);
}

function treePicture(reduction, at) {
  const { ranks, levels } = reduction;
  const [gap, rise] = [Math.max(26, 320 / ranks), 52];
  const [width, height] = [gap * ranks, rise * (levels.length - 1) + 44];
  const x = (rank) => round(gap * (rank + 0.5));
  const y = (level) => height - 22 - rise * level;
  const picture = byId("tree-picture");
  picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
  picture.setAttribute("style", `max-width:${Math.max(width, 320) * 1.25}px`);
  const edges = [];
  levels.slice(1).forEach((level, i) => level.states.forEach((each) => {
    const sources = each.merge ? [each.rank, each.merge.from] : [each.rank];
    for (const from of sources) edges.push(svg("path", {
      class: `branch ${i + 1 <= at ? "done" : ""}`,
      d: `M${x(from)} ${y(i)} C${x(from)} ${y(i) - rise / 2}, ${x(each.rank)} ${y(i + 1) + rise / 2}, ${x(each.rank)} ${y(i + 1)}`,
    }));
  }));
  const nodes = levels.flatMap((level, i) => level.states.map((each) => svg("g", { class: `node ${i <= at ? "done" : ""} ${i === at ? "now" : ""}`, style: rankStyle(each.rank, ranks) },
    svg("circle", { cx: x(each.rank), cy: y(i), r: Math.min(15, gap / 2 - 2) }),
    svg("text", { x: x(each.rank), y: y(i) }, `${each.rank}`))));
  picture.replaceChildren(picture.querySelector("title"), ...edges, ...nodes);
}
