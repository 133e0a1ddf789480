// (b) The holding matrix, and (c) the readouts of the step.

panel(({ variant, index, frames }) => {
  const ranks = variant.ranks;
  const last = frames.length - 1;
  const cell = (step, u, slice) => {
    const kind = step === null ? "never" : step > index ? "wait" : step === index ? "now" : "done";
    const words = {
      never: "hidden by the mask", wait: "still to come", now: "in this step", done: `absorbed in step ${step}`,
    }[kind];
    return html("td", { class: kind, style: kind === "wait" || kind === "never" ? null : rankStyle(slice, ranks), "data-kind": kind },
      html("span", { "aria-hidden": "true" }, kind === "never" ? "·" : kind === "wait" ? "" : `${step}`),
      html("span", { class: "hidden" }, words));
  };
  const table = byId("holding");
  table.classList.toggle("dense", ranks >= CROWD);
  table.replaceChildren(
    html("caption", { class: "hidden" }, index === last ? "Slices absorbed in the end" : `Slices absorbed up to step ${index}`),
    html("thead", {}, html("tr", {}, html("td"),
      Array.from({ length: ranks }, (_, slice) => html("th", { scope: "col" }, html("span", { class: "hidden" }, "slice "), `${slice}`)))),
    html("tbody", {}, variant.walk.absorbed_in.map((row, u) => html("tr", {},
      html("th", { scope: "row" }, html("span", { class: "dot", style: rankStyle(u, ranks) }), `rank ${u}`),
      row.map((step, slice) => cell(step, u, slice))))),
  );
});

panel(({ frame }) => {
  byId("readouts").replaceChildren(...frame.readouts.map((readout) =>
    html("div", { class: "readout", "data-id": readout.id, "data-value": readout.value },
      html("dt", {}, readout.label),
      html("dd", {}, html("b", {}, readout.text), html("span", { class: "detail" }, readout.detail),
        html("span", { class: "gauge", "aria-hidden": "true" },
          html("span", { style: `width:${round(100 * Math.min(readout.progress, 1))}%` }))))));
});
