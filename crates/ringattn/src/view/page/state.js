// The data, and the index into it that all panels share. Every panel is drawn from one frame of one
// variant at a time, so that no two of them ever show different steps.

const scene = JSON.parse(byId("data").textContent);

const state = { variant: scene.first, frame: 0, playing: false };

const panels = [];

// Registers a panel: `draw(view)` is called whenever the variant or the frame changes.
const panel = (draw) => panels.push(draw);

function view(moved = 0) {
  const variant = scene.variants[state.variant];
  const { frames } = variant.walk;
  return { variant, frames, index: state.frame, frame: frames[state.frame], moved };
}

function drawAll(moved) {
  const now = view(moved);
  for (const draw of panels) draw(now);
}

function goTo(frame) {
  const last = view().frames.length - 1;
  const target = Math.min(Math.max(frame, 0), last);
  if (target === state.frame) return;
  const moved = target - state.frame;
  state.frame = target;
  drawAll(moved);
}

// Another plan. The same ring in another layout stays in its step; another ring begins anew.
function choose(wanted) {
  const now = scene.variants[state.variant];
  const { ranks, layout, mask } = { ...now, ...wanted };
  const fits = (v) => v.ranks === ranks && v.layout === layout && v.mask === mask;
  const found = scene.variants.findIndex(fits);
  if (found < 0 || found === state.variant) return;
  state.variant = found;
  if (ranks !== now.ranks) {
    state.frame = 0;
    setPlaying(false);
  }
  drawAll(0);
}

// Long enough to see a block attended and passed on.
const PACE = 1700;
let timer = 0;

function setPlaying(playing) {
  state.playing = playing;
  clearInterval(timer);
  if (playing) {
    if (state.frame === view().frames.length - 1) goTo(0);
    timer = setInterval(advance, PACE);
  }
  drawPlayButton();
}

function advance() {
  goTo(state.frame + 1);
  if (state.frame === view().frames.length - 1) setPlaying(false);
}

const calm = matchMedia("(prefers-reduced-motion: reduce)");
