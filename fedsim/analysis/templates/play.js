/* Play the run: a cursor sweeps the visible time, clients light up as they come online and work, the curves above and below
   grow with it, and one client can be pinned. It starts still; readers who prefer less motion advance it step by step. */
fedsim.play = ({ host, view, place, row, rows, stateOf, name, beside, follow, key, say }) => {
  const LASTS_S = 20, STEP = 0.05;
  const button = document.getElementById("play"), clock = document.getElementById("clock");
  const reduced = window.matchMedia("(prefers-reduced-motion: reduce)"), still = () => reduced.matches;
  const named = () => { button.textContent = frame ? "Pause" : still() ? "Next 5% of the run" : "Play the run"; };
  const lamps = fedsim.add(host, "div", { class: "lamps", "aria-hidden": "true", hidden: "" });
  const veils = new Map();
  let share = null, pinned = null, frame = 0, last = 0;
  /* Covers a chart from an instant on. */
  function veil(chart, left, right, top, bottom) {
    if (!veils.has(chart)) veils.set(chart, fedsim.add(chart, "div", { class: "veil" }));
    const style = { left: `${left}px`, width: `${Math.max(right - left, 0)}px`, top: `${top}px`, height: `${bottom - top}px` };
    Object.assign(veils.get(chart).style, style);
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
  function pause() {
    cancelAnimationFrame(frame);
    frame = 0;
    named();
    button.classList.remove("playing");
  }
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
    if (share === null) {
      share = 0;
      key();
    }
    if (still()) {
      share += STEP;
      if (share >= 1) stop(); else show();
      return;
    }
    button.classList.add("playing");
    last = performance.now();
    frame = requestAnimationFrame(step);
    named();
  }
  function pin(client) {
    pinned = client === pinned ? null : client;
    if (share !== null) show();
    if (pinned !== null) fedsim.live.textContent = `${name(client)} is pinned`;
  }
  button.hidden = false;
  named();
  reduced.addEventListener("change", named);
  button.addEventListener("click", toggle);
  return { toggle, stop, pin, get playing() { return share !== null; } };
};
