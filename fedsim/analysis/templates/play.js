/* Play the run: a cursor sweeps the visible time, clients light up as they come online and work, the curves above and below
   grow with it, and one client can be pinned. It starts still; readers who prefer less motion advance it step by step. */
fedsim.play = ({ host, view, place, row, rows, stateOf, name, beside, follow, key, say }) => {
  const LASTS_S = 20, STEP = 0.05;
  const button = document.getElementById("play"), clock = document.getElementById("clock");
  const still = window.matchMedia("(prefers-reduced-motion: reduce)");
  const lamps = fedsim.add(host, "div", { class: "lamps", "aria-hidden": "true", hidden: "" });
  const veils = new Map();
  let share = null, pinned = null, frame = 0, last = 0;
  /* Covers a chart from an instant on. */
  function veil(chart, left, right, top, bottom) {
    if (!veils.has(chart)) veils.set(chart, fedsim.add(chart, "div", { class: "veil" }));
    Object.assign(veils.get(chart).style, { left: `${left}px`, width: `${Math.max(right - left, 0)}px`, top: `${top}px`, height: `${bottom - top}px` });
  }
  const values = fedsim.data.learning ? fedsim.column("learning", fedsim.data.learning.metrics[0]) : null;
  const times = values ? fedsim.column("learning", "time_s").values : [];
  function show() {
    const [from, to] = view(), at = from + share * (to - from), { x, right, top, height } = place(at);
    veil(host, x, right, top, top + height);
    follow(at);
    for (const other of beside()) {
      const { along, box } = other.state.drawn;
      const left = Math.max(box.left, Math.min(box.right, along.at(at)));
      veil(other.area.parentElement, left, box.right, box.top, box.bottom);
    }
    host.append(lamps);
    lamps.replaceChildren();
    lamps.hidden = false;
    rows().forEach((client, number) => {
      const state = stateOf(client, at), y = row(number);
      fedsim.add(lamps, "i", { class: client === pinned ? "pinned" : "", style: `top:${y}px;background:var(--${state.color});opacity:${state.color === "offline" ? 0.25 : 1}` });
      if (client === pinned) fedsim.add(lamps, "b", { style: `top:${y - 11}px;left:${place(from).x}px;width:${right - place(from).x}px` });
    });
    const index = times.findLastIndex((time) => time <= at);
    clock.textContent = `${fedsim.show("time", at)}${index < 0 ? "" : ` · ${values.label} ${fedsim.show(values.kind, values.values[index])}`}`;
    if (pinned !== null) say(`${name(pinned)}: ${stateOf(pinned, at).words}`);
  }
  function turn(next) {
    frame = next;
    button.textContent = frame ? "Pause" : still.matches ? "Next 5% of the run" : "Play the run";
    button.classList.toggle("playing", frame > 0);
  }
  const pause = () => { cancelAnimationFrame(frame); turn(0); };
  function stop() {
    pause();
    share = null;
    lamps.hidden = true;
    clock.textContent = "";
    veils.forEach((each) => each.remove());
    veils.clear();
    follow(null);
    key();
  }
  function step(now) {
    share += (now - last) / 1000 / LASTS_S;
    last = now;
    if (share >= 1) { stop(); return; }
    show();
    frame = requestAnimationFrame(step);
  }
  function toggle() {
    if (frame) { pause(); return; }
    if (share === null) { share = 0; key(); }
    last = performance.now();
    if (!still.matches) turn(requestAnimationFrame(step));
    else if ((share += STEP) < 1) show();
    else stop();
  }
  function pin(client) {
    pinned = client === pinned ? null : client;
    if (share !== null) show();
    if (pinned !== null) fedsim.live.textContent = `${name(client)} is pinned`;
  }
  button.hidden = false;
  pause();
  still.addEventListener("change", pause);
  button.addEventListener("click", toggle);
  return { toggle, stop, pin, get playing() { return share !== null; } };
};
