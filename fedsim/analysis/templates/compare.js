"use strict";
/* The charts of a comparison page: curves with bands, with distinct colors, dashes and markers. */
(() => {
  const { data, show, onAxis, ticks, extent, add, mount, axes, table } = fedsim;
  const { groups, settings, targets } = data.comparison;
  const COLORS = 8;
  const BANDS_UP_TO = 5; // More bands than this hide each other; they can be switched on.
  const DASHES = ["", "7 4", "2 3", "9 3 2 3", "12 4", "4 2", "1 3", "9 3 2 3 2 3"];
  const MARKERS = [
    "M-4 0A4 4 0 1 1 4 0A4 4 0 1 1 -4 0Z",
    "M-3.6 -3.6H3.6V3.6H-3.6Z",
    "M0 -4.8L4.6 3.8H-4.6Z",
    "M0 -5L5 0L0 5L-5 0Z",
    "M0 4.8L4.6 -3.8H-4.6Z",
    "M-1.5 -5H1.5V-1.5H5V1.5H1.5V5H-1.5V1.5H-5V-1.5H-1.5Z",
    "M-5 -2L0 -5L5 -2L3 4.5H-3Z",
    "M-4.5 -1.8H4.5V1.8H-4.5Z",
  ];
  const host = (name) => document.getElementById(`chart-${name}`);
  const finding = (name) => document.querySelector(`#figure-${name} .finding`).textContent;
  const chooser = document.getElementById("setting");
  const current = () => (chooser ? chooser.value : settings[0]);
  const members = () => groups.map((group, index) => ({ ...group, index })).filter((group) => group.setting === current());
  const hidden = new Set();
  const drawings = [];
  const redraw = () => drawings.forEach((draw) => draw());

  const look = (place) => ({
    color: `g${place % COLORS}`,
    dash: DASHES[(place + Math.floor(place / COLORS)) % DASHES.length],
    marker: MARKERS[(place + Math.floor(place / COLORS)) % MARKERS.length],
  });

  /* Fades all lines but one; none where the label is null. */
  function emphasise(name, label) {
    for (const part of host(name).querySelectorAll("g[data-label]")) part.classList.toggle("faded", label !== null && part.dataset.label !== label);
  }

  function legend(name) {
    const list = document.querySelector(`[data-legend="${name}"]`);
    const focused = document.activeElement && list.contains(document.activeElement) ? document.activeElement.dataset.label : null;
    list.replaceChildren();
    for (const group of members()) {
      const { color, dash, marker } = look(group.place);
      const button = add(add(list, "li"), "button", { type: "button", "aria-pressed": String(!hidden.has(group.label)), "data-label": group.label, title: "Show or hide" });
      const icon = add(button, "svg", { width: 30, height: 12, "aria-hidden": "true" });
      add(icon, "line", { x1: 0, x2: 30, y1: 6, y2: 6, style: `stroke:var(--${color});stroke-width:2.25`, "stroke-dasharray": dash });
      add(icon, "path", { d: marker, transform: "translate(15 6)", style: `fill:var(--${color})` });
      add(button, "span", {}, group.label);
      button.addEventListener("click", () => {
        if (!hidden.delete(group.label)) hidden.add(group.label);
        redraw();
      });
      button.addEventListener("pointerenter", () => emphasise(name, group.label));
      button.addEventListener("pointerleave", () => emphasise(name, null));
      if (group.label === focused) button.focus();
    }
  }

  /* spec: x {kind, label, values}, y {kind, label, from, to}, series [{label, place, mean, low, high}], step: values hold until the next,
     bands: whether to draw low and high, marks: values that are to be reached. */
  function curves(target, summary, spec) {
    const { x, y, series, step, bands = false, marks: goals = [] } = spec;
    mount(target, summary, (svg, width, height) => {
      const every = series.flatMap((s) => [...s.mean, ...(bands ? [...s.low, ...s.high] : [])]);
      let [low, high] = extent(every);
      if (!Number.isFinite(low)) [low, high] = [0, 1];
      if (low > 0 && low < 0.5 * high) low = 0;
      if (y.from !== undefined) [low, high] = [Math.max(low, y.from), Math.min(high, y.to)];
      if (y.whole) [low, high] = [y.from, y.to];
      if (high <= low) high = low + 1;
      let marks = ticks(y.kind, low, high, height / 52);
      const gap = marks.length > 1 ? marks[1] - marks[0] : high - low;
      low = Math.floor(low / gap + 1e-9) * gap;
      high = Math.ceil(high / gap - 1e-9) * gap;
      if (y.to !== undefined) high = Math.min(high, y.to);
      marks = ticks(y.kind, low, high, height / 52);
      const [first, last] = x.values.length ? extent(x.values) : [0, 1];
      const { box, sx, sy } = axes(svg, width, height,
        { kind: x.kind, label: x.label, low: Math.min(0, first), high: last > first ? last : first + 1 },
        { kind: y.kind, label: y.label, low, high, ticks: marks });
      const clamp = (value) => sy(Math.max(low, Math.min(high, value)));
      const trace = (values, back) => {
        const order = values.map((_, index) => index).filter((index) => values[index] !== null);
        if (back) order.reverse();
        let path = "", before = null;
        for (const index of order) {
          const px = sx(x.values[index]).toFixed(2), py = clamp(values[index]).toFixed(2);
          // A held value goes along before it goes up; backwards it is the other way round.
          if (before !== null && step) path += back ? `V${py}` : `H${px}`;
          path += `${before === null ? (back ? "L" : "M") : "L"}${px} ${py}`;
          before = index;
        }
        return path;
      };
      for (const goal of goals.filter((value) => low <= value && value <= high)) {
        add(svg, "line", { class: "goal", x1: box.left, x2: box.right, y1: sy(goal), y2: sy(goal) });
        add(svg, "text", { x: box.left + 5, y: sy(goal) - 5 }, `target ${onAxis(y.kind, goal)}`);
      }
      for (const s of bands ? series : []) {
        if (s.high.every((value) => value === null)) continue;
        const path = trace(s.high, false) + trace(s.low, true);
        add(add(svg, "g", { "data-label": s.label }), "path", { d: `${path}Z`, style: `fill:var(--${look(s.place).color});opacity:.16` });
      }
      for (const s of series) {
        const { color, dash, marker } = s.plain ? { color: "muted", dash: "3 4" } : look(s.place);
        const line = add(svg, "g", { "data-label": s.label });
        add(line, "path", { d: trace(s.mean, false), fill: "none", style: `stroke:var(--${color});stroke-width:2.25;stroke-linejoin:round`, "stroke-dasharray": dash });
        if (!marker) continue;
        const known = s.mean.map((value, index) => index).filter((index) => s.mean[index] !== null);
        // Markers at even distances on the axis, shifted from line to line so that they do not hide each other.
        const wanted = 9, span = box.right - box.left;
        let next = box.left + (span / wanted) * (0.35 + (s.place % 4) * 0.2);
        for (const index of known) {
          if (sx(x.values[index]) < next) continue;
          add(line, "path", { d: marker, transform: `translate(${sx(x.values[index]).toFixed(2)} ${clamp(s.mean[index]).toFixed(2)})`, style: `fill:var(--${color});stroke:var(--card);stroke-width:1` });
          next = sx(x.values[index]) + span / wanted;
        }
      }
      return x.values.map((value, index) => {
        const seen = series.find((s) => s.mean[index] !== null);
        return {
          x: sx(value), y: seen ? clamp(seen.mean[index]) : box.top,
          lines: [`${x.label} ${show(x.kind, value)}`, ...series.map((s) => {
            const mean = show(y.kind, s.mean[index]);
            return `${s.label} ${mean}${s.low && s.low[index] !== null ? ` (${show(y.kind, s.low[index])} to ${show(y.kind, s.high[index])})` : ""}`;
          })],
        };
      });
    });
  }

  /* The numbers of a chart follow what is chosen. */
  function numbers(name, columns) {
    const details = document.querySelector(`[data-table="${name}"]`);
    const fresh = details.cloneNode(false);
    fresh.append(details.querySelector("summary"));
    delete fresh.dataset.built;
    const open = details.open;
    fresh.open = false;
    details.replaceWith(fresh);
    table(fresh, { columns });
    fresh.open = open;
  }

  if (data.charts.metrics.length) {
    const { metrics, against, settings: values } = data.charts;
    const metricChoice = document.getElementById("metric");
    for (const metric of metrics) metricChoice.add(new Option(metric.label, metric.key));
    const progress = document.getElementById("progress");
    against.forEach((each, number) => {
      const label = add(progress, "label");
      const input = add(label, "input", { type: "radio", name: "progress", value: each.key });
      input.checked = number === 0;
      label.append(` ${each.label}`);
    });
    const banded = document.getElementById("bands");
    banded.checked = members().length <= BANDS_UP_TO;
    const draw = () => {
      legend("curves");
      const metric = metrics.find((each) => each.key === metricChoice.value);
      const axis = against.find((each) => each.key === progress.querySelector("input:checked").value);
      const chosen = values[current()][metric.key][axis.key];
      const all = members().map((group, number) => ({ label: group.label, place: group.place, ...chosen.groups[number] }));
      const series = all.filter((s) => !hidden.has(s.label));
      const bounded = metric.kind === "share" ? { from: 0, to: 1 } : {};
      curves(host("curves"), finding("curves"), { x: { ...axis, values: chosen.x }, y: { ...metric, ...bounded }, series, step: true,
        bands: banded.checked, marks: targets.filter((goal) => goal.metric === metric.key).map((goal) => goal.value) });
      numbers("curves", [
        { key: axis.key, label: axis.label, kind: axis.kind, values: chosen.x },
        ...all.flatMap((s) => [["mean", ""], ["low", " − sd"], ["high", " + sd"]].map(([key, suffix]) => ({ key: `${s.label} ${key}`, label: s.label + suffix, kind: metric.kind, values: s[key] }))),
      ]);
    };
    metricChoice.addEventListener("change", draw);
    progress.addEventListener("change", draw);
    banded.addEventListener("change", draw);
    drawings.push(draw);
  }

  function distribution(name, y, diagonal) {
    if (!data[name]) return;
    const x = data[name].columns[0];
    drawings.push(() => {
      legend(name);
      const all = members().map((group) => ({ label: group.label, place: group.place, mean: data[name].groups[group.index] }));
      const series = all.filter((s) => !hidden.has(s.label));
      if (diagonal) series.push({ label: "if all were equal", plain: true, mean: x.values });
      curves(host(name), finding(name), { x, y: { kind: "share", label: y, from: 0, to: 1, whole: true }, series });
      numbers(name, [x, ...all.map((s) => ({ key: s.label, label: s.label, kind: "share", values: s.mean }))]);
    });
  }
  distribution("lorenz", "share of updates", true);
  distribution("client_accuracy", "share of clients", false);

  if (chooser) {
    for (const setting of settings) chooser.add(new Option(setting, setting));
    chooser.addEventListener("change", redraw);
  }
  redraw();
})();
