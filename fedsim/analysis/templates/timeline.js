"use strict";
/* The dispatches of a sample of clients on a canvas that can be moved and zoomed. */
(() => {
  const host = document.getElementById("chart-timeline");
  const figure = fedsim.data.timeline;
  const values = (key) => fedsim.column("timeline", key).values;
  const TOP = 22, RIGHT = 10, BOTTOM = 46;
  const LEFT = 12 + 8 * Math.max(5, ...figure.clients.map((client) => String(client).length));
  const PHASES = [["download", "dispatched_s", "downloaded_s"], ["compute", "downloaded_s", "computed_s"], ["upload", "computed_s", "arrived_s"]];
  const MARKS = {
    aggregated: "M-4 0A4 4 0 1 1 4 0A4 4 0 1 1 -4 0Z",
    late: "M0 -4.5L4.5 4L-4.5 4Z",
    dropped: "M-4 -2.6L-2.6 -4L0 -1.4L2.6 -4L4 -2.6L1.4 0L4 2.6L2.6 4L0 1.4L-2.6 4L-4 2.6L-1.4 0Z",
    cut: "M-3.6 -3.6L3.6 -3.6L3.6 3.6L-3.6 3.6Z",
    discarded: "M0 -5L5 0L0 5L-5 0Z",
    unfinished: "M-4.5 -1.5L4.5 -1.5L4.5 1.5L-4.5 1.5Z",
  };
  const time = {};
  for (const key of ["dispatched_s", "downloaded_s", "computed_s", "arrived_s", "ended_s", "waited_s", "aggregated_s"]) time[key] = values(key);
  const outcome = values("outcome"), steps = values("steps_done"), version = values("version"), id = values("dispatch_id");
  const rows = figure.clients.map(() => []);
  figure.order.forEach((row, index) => rows[row].push(index));
  const whole = [0, Math.max(figure.until_s, 1)];
  const count = outcome.length;
  // About eight dispatches a client fit a first look.
  const start = count ? Math.min(...time.dispatched_s) : 0;
  const span = whole[1] * Math.min(1, (8 * rows.length) / Math.max(count, 1));
  let view = span < whole[1] ? [start, Math.min(start + span, whole[1])] : [...whole];
  let selected = null, row = 0;
  const tall = () => (host.clientHeight - TOP - BOTTOM) / Math.max(rows.length, 1);

  const present = Object.keys(MARKS).filter((name) => outcome.includes(name));
  fedsim.legend(document.getElementById("timeline-legend"), [
    ...PHASES.map(([name]) => ({ label: name, color: name })),
    { label: "waiting", color: "waiting", line: true },
    ...present.map((name) => ({ label: name, color: name, shape: MARKS[name] })),
  ]);

  const shapes = Object.fromEntries(Object.entries(MARKS).map(([name, path]) => [name, new Path2D(path)]));
  const x = (width) => fedsim.scale(view[0], view[1], LEFT, width - RIGHT);
  const endOf = (index) => time.waited_s[index] ?? time.ended_s[index];

  function paint(context, width, height) {
    const sx = x(width), high = tall();
    const ink = Object.fromEntries(["text", "muted", "grid", "card", "waiting", "accent", ...PHASES.map(([n]) => n), ...present].map((n) => [n, fedsim.color(n)]));
    context.textBaseline = "middle";
    context.strokeStyle = ink.grid;
    context.fillStyle = ink.muted;
    context.textAlign = "center";
    for (const tick of fedsim.ticksThatFit("time", view[0], view[1], width - LEFT, 92)) {
      const at = sx(tick);
      context.beginPath(); context.moveTo(at, TOP); context.lineTo(at, height - BOTTOM); context.stroke();
      const text = fedsim.onAxis("time", tick), half = context.measureText(text).width / 2;
      context.fillText(text, Math.min(at, width - half - 1), height - BOTTOM + 12);
    }
    context.textAlign = "right";
    context.fillText("simulated time", width - RIGHT, height - 9);
    figure.clients.forEach((client, place) => {
      const y = TOP + (place + 0.5) * high;
      context.fillStyle = place === row && document.activeElement === element ? ink.text : ink.muted;
      context.textAlign = "right";
      context.fillText(client, LEFT - 8, y);
    });
    context.textAlign = "left";
    context.fillStyle = ink.muted;
    context.fillText("client", 2, 11);
    context.save();
    context.beginPath();
    context.rect(LEFT, 0, width - LEFT - RIGHT + 6, height - BOTTOM);
    context.clip();
    rows.forEach((indices, place) => {
      const y = TOP + (place + 0.5) * high;
      const inView = indices.filter((index) => endOf(index) >= view[0] && time.dispatched_s[index] <= view[1]);
      for (const index of inView) {
        for (const [name, from, to] of PHASES) {
          const a = time[from][index];
          if (a === null) break;
          const b = time[to][index] ?? time.ended_s[index];
          context.fillStyle = ink[name];
          context.fillRect(sx(a), y - 5, Math.max(sx(b) - sx(a), 0.8), 10);
        }
        if (time.waited_s[index] !== null) {
          context.fillStyle = ink.waiting;
          context.fillRect(sx(time.arrived_s[index]), y - 1.5, Math.max(sx(time.waited_s[index]) - sx(time.arrived_s[index]), 0.8), 3);
        }
      }
      // Marks lie on top of the work that follows at once.
      let lastMark = -Infinity;
      for (const index of inView) {
        const at = sx(endOf(index));
        if (at - lastMark > 8) {
          lastMark = at;
          context.save();
          context.translate(at, y);
          context.scale(0.9, 0.9);
          context.fillStyle = ink[outcome[index]];
          context.strokeStyle = ink.card;
          context.lineWidth = 2.5;
          context.stroke(shapes[outcome[index]]);
          context.fill(shapes[outcome[index]]);
          context.restore();
        }
        if (index === selected) {
          context.strokeStyle = ink.text;
          context.lineWidth = 2;
          context.strokeRect(sx(time.dispatched_s[index]) - 2, y - 8, at - sx(time.dispatched_s[index]) + 4, 16);
          context.lineWidth = 1;
        }
      }
    });
    context.restore();
    // Where in the run the view lies.
    const bar = fedsim.scale(whole[0], whole[1], LEFT, width - RIGHT);
    context.fillStyle = ink.grid;
    context.fillRect(LEFT, height - 22, width - LEFT - RIGHT, 3);
    context.fillStyle = ink.accent;
    context.fillRect(bar(view[0]), height - 22, Math.max(bar(view[1]) - bar(view[0]), 3), 3);
  }
  const label = `${fedsim.titleOf(host)}: ${count} dispatches of ${rows.length} clients. Left and right arrows move, plus and minus zoom, up and down select a client, Enter steps through its dispatches.`;
  const { element, redraw } = fedsim.canvas(host, label, paint);
  const tip = fedsim.tooltip(host);

  function look(from, width) {
    const length = Math.min(Math.max(width, 1e-3), whole[1] - whole[0]);
    const begin = Math.min(Math.max(from, whole[0]), whole[1] - length);
    view = [begin, begin + length];
    redraw();
  }
  const zoom = (factor, centre = (view[0] + view[1]) / 2) => look(centre - (centre - view[0]) * factor, (view[1] - view[0]) * factor);
  const pan = (share) => look(view[0] + (view[1] - view[0]) * share, view[1] - view[0]);
  /* Closer to the chosen dispatch, or to the one nearest to the middle: never into empty time. */
  function closer(index = selected) {
    const middle = (view[0] + view[1]) / 2;
    const centre = (i) => (time.dispatched_s[i] + endOf(i)) / 2;
    const all = time.dispatched_s.map((_, i) => i);
    const to = index ?? all.reduce((best, i) => (Math.abs(centre(i) - middle) < Math.abs(centre(best) - middle) ? i : best), 0);
    const length = (view[1] - view[0]) / 2;
    if (count) look(centre(to) - length / 2, length);
  }
  const ACTIONS = {
    in: () => closer(), out: () => zoom(2), earlier: () => pan(-0.5), later: () => pan(0.5), whole: () => look(0, Infinity),
  };
  for (const button of document.querySelectorAll("[data-view]")) button.addEventListener("click", () => { tip.hide(); ACTIONS[button.dataset.view](); });

  function describe(index, say) {
    const t = (key) => time[key][index];
    const text = [`Client ${figure.clients[figure.order[index]]}, dispatch ${id[index]}`, `from version ${version[index]}, at ${fedsim.show("time", t("dispatched_s"))}`];
    for (const [name, from, to] of PHASES) if (t(from) !== null) text.push(`${name} ${fedsim.show("time", (t(to) ?? t("ended_s")) - t(from))}${t(to) === null ? ", not finished" : ""}`);
    if (t("waited_s") !== null) text.push(`waiting ${fedsim.show("time", t("waited_s") - t("arrived_s"))}`);
    text.push(`${steps[index]} steps, ${outcome[index]}`);
    const sx = x(host.clientWidth);
    const middle = (Math.max(t("dispatched_s"), view[0]) + Math.min(endOf(index), view[1])) / 2;
    tip.show(sx(middle), TOP + (figure.order[index] + 0.5) * tall(), text, say);
  }
  /* The dispatch under the pointer. */
  function at(event) {
    const area = element.getBoundingClientRect();
    const perPixel = (view[1] - view[0]) / (host.clientWidth - LEFT - RIGHT);
    const place = Math.floor((event.clientY - area.top - TOP) / tall());
    const when = view[0] + (event.clientX - area.left - LEFT) * perPixel, slack = 5 * perPixel;
    return (rows[place] || []).find((index) => time.dispatched_s[index] - slack <= when && when <= endOf(index) + slack);
  }
  let drag = null;
  element.addEventListener("pointerdown", (event) => { drag = { x: event.clientX, from: view[0] }; element.setPointerCapture(event.pointerId); });
  element.addEventListener("pointerup", () => { drag = null; });
  element.addEventListener("pointercancel", () => { drag = null; });
  element.addEventListener("pointermove", (event) => {
    const scaleX = (view[1] - view[0]) / (host.clientWidth - LEFT - RIGHT);
    if (drag) { tip.hide(); look(drag.from - (event.clientX - drag.x) * scaleX, view[1] - view[0]); return; }
    const hit = at(event);
    if (hit === undefined) tip.hide(); else describe(hit, false);
  });
  element.addEventListener("pointerleave", () => tip.hide());
  element.addEventListener("dblclick", (event) => {
    const index = at(event);
    if (index === undefined) return;
    const length = Math.max((endOf(index) - time.dispatched_s[index]) * 4, 1e-3);
    look(time.dispatched_s[index] - length * 0.375, length);
  });
  element.addEventListener("wheel", (event) => {
    const scaleX = (view[1] - view[0]) / (host.clientWidth - LEFT - RIGHT);
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      zoom(Math.exp(event.deltaY * 0.003), view[0] + (event.offsetX - LEFT) * scaleX);
    } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      look(view[0] + event.deltaX * scaleX, view[1] - view[0]);
    }
  }, { passive: false });
  element.addEventListener("focus", redraw);
  element.addEventListener("blur", () => { selected = null; tip.hide(); redraw(); });
  element.addEventListener("keydown", (event) => {
    const keys = {
      ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), "+": ACTIONS.in, "=": ACTIONS.in, "-": ACTIONS.out, 0: ACTIONS.whole,
      ArrowUp: () => { row = Math.max(0, row - 1); selected = null; redraw(); },
      ArrowDown: () => { row = Math.min(rows.length - 1, row + 1); selected = null; redraw(); },
      Escape: () => { selected = null; tip.hide(); redraw(); },
      Enter: () => {
        const own = rows[row];
        if (!own || !own.length) return;
        const place = own.indexOf(selected);
        const first = own.findIndex((index) => endOf(index) >= view[0]);
        selected = place < 0 ? own[Math.max(first, 0)] : own[(place + (event.shiftKey ? -1 : 1) + own.length) % own.length];
        const length = view[1] - view[0];
        if (time.dispatched_s[selected] < view[0] || endOf(selected) > view[1]) look(time.dispatched_s[selected] - length * 0.2, length); else redraw();
        describe(selected, true);
      },
    };
    if (!keys[event.key]) return;
    event.preventDefault();
    if (event.key !== "Enter") tip.hide();
    keys[event.key]();
  });
})();
