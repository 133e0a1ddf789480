// The controls: playback, position, choices and keys.

// Buttons and a slider that move an index of their own, for panels with an order inside.
function stepper(box, noun, changed) {
  const id = `${box.id}-range`;
  const back = html("button", { type: "button", "aria-label": `Previous ${noun}` }, "‹");
  const next = html("button", { type: "button", "aria-label": `Next ${noun}` }, "›");
  const range = html("input", { type: "range", id, min: 0, max: 0, step: 1, "aria-label": box.getAttribute("aria-label") });
  const text = html("output", { for: id });
  range.value = "0";
  // A range keeps its value within its ends.
  const move = (value) => { range.value = `${value}`; changed(); };
  back.addEventListener("click", () => move(Number(range.value) - 1));
  next.addEventListener("click", () => move(Number(range.value) + 1));
  range.addEventListener("input", changed);
  box.append(back, range, next, text);
  return {
    // The index, cut to what there is.
    limit(last) {
      range.max = `${last}`;
      if (Number(range.value) > last) range.value = `${last}`;
      back.setAttribute("aria-disabled", `${Number(range.value) === 0}`);
      next.setAttribute("aria-disabled", `${Number(range.value) === last}`);
      return Number(range.value);
    },
    say(words) {
      text.textContent = words;
      range.setAttribute("aria-valuetext", words);
    },
  };
}

function segments(box, name, values, label) {
  const inputs = values.map((value) => {
    const input = html("input", { type: "radio", name, value, id: `${name}-${value}` });
    input.addEventListener("change", () => choose({ [name]: name === "ranks" ? Number(value) : value }));
    return html("label", {}, input, html("span", {}, label(value)));
  });
  box.replaceChildren(...inputs);
}

const distinct = (pick) => [...new Set(scene.variants.map(pick))];

function setUpChoices() {
  const ranks = distinct((v) => v.ranks).sort((a, b) => a - b);
  const masks = distinct((v) => v.mask);
  segments(byId("ranks"), "ranks", ranks, String);
  segments(byId("layouts"), "layout", distinct((v) => v.layout), String);
  segments(byId("masks"), "mask", masks, String);
  byId("ranks-choice").hidden = ranks.length < 2;
  byId("mask-choice").hidden = masks.length < 2;
}

function setUpPlayback() {
  byId("reset").addEventListener("click", () => { setPlaying(false); goTo(0); });
  byId("back").addEventListener("click", () => { setPlaying(false); goTo(state.frame - 1); });
  byId("step").addEventListener("click", () => { setPlaying(false); goTo(state.frame + 1); });
  byId("play").addEventListener("click", () => setPlaying(!state.playing));
  byId("position").addEventListener("input", (event) => { setPlaying(false); goTo(Number(event.target.value)); });
}

function setUpKeys() {
  const keys = { ArrowRight: "step", ArrowLeft: "back", Home: "reset", " ": "play" };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    // Where a key has a meaning of its own, it keeps it.
    const own = event.target.closest("input, select, button, summary, .scroll");
    if (own && !(own.matches("button") && event.key !== " ")) return;
    if (event.key === "End") goTo(view().frames.length - 1);
    else if (keys[event.key]) byId(keys[event.key]).click();
    else return;
    event.preventDefault();
  });
}

function drawPlayButton() {
  byId("play-label").textContent = state.playing ? "Pause" : "Play";
  byId("play-icon").setAttribute("d", state.playing ? "M5 4h3.5v12H5zM11.5 4H15v12h-3.5z" : "M6 4v12l10-6z");
}

panel(({ variant, frame, index, frames }) => {
  const last = frames.length - 1;
  const position = byId("position");
  position.max = `${last}`;
  position.value = `${index}`;
  position.setAttribute("aria-valuetext", frame.title);
  byId("position-text").textContent = frame.title;
  // Not `disabled`, which would take the focus away from under the finger.
  const off = { reset: index === 0, back: index === 0, step: index === last };
  for (const [id, value] of Object.entries(off)) byId(id).setAttribute("aria-disabled", `${value}`);
  for (const name of ["ranks", "layout", "mask"]) byId(`${name}-${variant[name]}`).checked = true;
  byId("live").textContent = frame.words;
});
