// Puts the page together.

function setUpHead() {
  const { origin } = scene;
  document.title = `${origin.title} · ringattn`;
  byId("title").textContent = origin.title;
  byId("problem").textContent = `${origin.problem}.`;
  byId("notes").hidden = origin.notes.length === 0;
  byId("notes").replaceChildren(...origin.notes.map((note) => html("li", {}, note)));
}

setUpHead();
setUpChoices();
setUpPlayback();
setUpKeys();
drawAll(0);
