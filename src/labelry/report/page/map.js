// Names on the label map: of the label under the pointer, or that the arrow keys have come to.
const svg = document.getElementById("map");
if (svg) {
  const names = svg.dataset.names ? svg.dataset.names.split("\n") : [];
  const places = svg.dataset.places.split(" ").map(Number);
  const tip = document.getElementById("map-name");
  const ring = document.getElementById("map-ring");
  const REACH = 28; // pixels from the pointer to a label
  const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  let current = null;

  const hide = () => {
    current = null;
    tip.hidden = true;
    ring.setAttribute("visibility", "hidden");
  };

  const show = (i) => {
    current = i;
    ring.setAttribute("cx", places[2 * i]);
    ring.setAttribute("cy", places[2 * i + 1]);
    ring.setAttribute("visibility", "visible");
    tip.textContent = names[i];
    tip.hidden = false;
    const frame = svg.parentElement.getBoundingClientRect();
    const at = new DOMPoint(places[2 * i], places[2 * i + 1]).matrixTransform(svg.getScreenCTM());
    const left = Math.min(Math.max(4, at.x - frame.left + 12), frame.width - tip.offsetWidth - 4);
    const below = at.y - frame.top + 14;
    const above = at.y - frame.top - tip.offsetHeight - 12;
    tip.style.left = `${left}px`;
    tip.style.top = `${below + tip.offsetHeight < frame.height ? below : above}px`;
  };

  /** The label with the least cost, which is given how far right and down it lies; or null. */
  const least = (x, y, cost) => {
    let [found, lowest] = [null, Infinity];
    for (let i = 0; i < names.length; i++) {
      const value = cost(places[2 * i] - x, places[2 * i + 1] - y);
      if (value < lowest) [found, lowest] = [i, value];
    }
    return found;
  };

  const point = (event) => {
    const matrix = svg.getScreenCTM();
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse());
    const reach = REACH / matrix.a;
    const found = least(at.x, at.y, (dx, dy) => (Math.hypot(dx, dy) < reach ? Math.hypot(dx, dy) : Infinity));
    if (found === null) hide();
    else show(found);
  };

  svg.addEventListener("pointermove", point);
  svg.addEventListener("pointerdown", point);
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
    const arrow = ARROWS[event.key];
    if (!arrow || !names.length) return;
    event.preventDefault();
    if (current === null) {
      show(0); // the most frequent
      return;
    }
    const [ax, ay] = arrow;
    const found = least(places[2 * current], places[2 * current + 1], (dx, dy) => {
      const ahead = dx * ax + dy * ay;
      const aside = Math.abs(dx * ay) + Math.abs(dy * ax);
      return ahead > 0 && aside <= ahead ? ahead + 2 * aside : Infinity;
    });
    if (found !== null) show(found);
  });
}
