"use strict";
/* Small charts without dependencies. Every chart is drawn from the columns of a figure, follows the width of its host, takes
   colors from the style sheet (so that themes need no redrawing), and can be read with pointer or keyboard. */
const fedsim = (() => {
  const SVG = "http://www.w3.org/2000/svg";

  const show = format.value, onAxis = format.tick;

  // -- scales -----------------------------------------------------------------------------------------------------------
  const TIME_STEPS = [1, 2, 5, 10, 15, 30]
    .concat([1, 2, 5, 10, 15, 30].map((m) => m * 60))
    .concat([1, 2, 3, 6, 12].map((h) => h * 3600))
    .concat([1, 2, 5, 7, 14, 28, 70, 140, 365].map((d) => d * 86400));
  function niceStep(span, count) {
    const rough = span / Math.max(count, 1) || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 5, 10].map((m) => m * power).find((step) => step >= rough * 0.999);
  }
  function ticks(kind, low, high, count) {
    const span = high - low;
    let step;
    if (kind === "time" && span > 5) step = TIME_STEPS.find((s) => span / s <= count) || niceStep(span / 86400, count) * 86400;
    else step = niceStep(span, count);
    if (kind === "count") step = Math.max(1, step);
    const result = [];
    // Adding zero turns -0 into 0.
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k += 1) result.push(k * step + 0);
    return result;
  }
  /* Ticks of a horizontal axis, as many as fit beside each other; at least so many pixels each. */
  function ticksThatFit(kind, low, high, pixels, least) {
    const all = ticks(kind, low, high, pixels / least);
    const widest = Math.max(0, ...all.map((tick) => onAxis(kind, tick).length)) * 7.2 + 14;
    return widest <= least ? all : ticks(kind, low, high, pixels / widest);
  }
  const scale = (d0, d1, r0, r1) => (value) => r0 + ((value - d0) / (d1 - d0 || 1)) * (r1 - r0);
  const extent = (values) => values.reduce(([a, b], v) => (v === null ? [a, b] : [Math.min(a, v), Math.max(b, v)]), [Infinity, -Infinity]);
  function nearest(sorted, value) {
    let low = 0, high = sorted.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (sorted[middle] < value) low = middle; else high = middle;
    }
    return Math.abs(sorted[low] - value) <= Math.abs(sorted[high] - value) ? low : high;
  }

  // -- elements ---------------------------------------------------------------------------------------------------------
  function add(parent, tag, attributes = {}, text) {
    const svg = parent.namespaceURI === SVG || tag === "svg";
    const element = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== undefined) element.textContent = text;
    parent.append(element);
    return element;
  }
  function legend(host, items) {
    const list = host.classList.contains("legend") ? host : add(host, "ul", { class: "legend" });
    for (const { label, color, line, dash, shape } of items) {
      const item = add(list, "li");
      const icon = add(item, "svg", { width: 16, height: 12, "aria-hidden": "true" });
      if (shape) add(icon, "path", { d: shape, transform: "translate(8 6)", style: `fill:var(--${color});stroke:var(--${color})` });
      else if (line) add(icon, "line", { x1: 0, x2: 16, y1: 6, y2: 6, style: `stroke:var(--${color});stroke-width:3`, "stroke-dasharray": dash || "" });
      else add(icon, "rect", { x: 1, y: 0, width: 12, height: 12, rx: 3, style: `fill:var(--${color})` });
      add(item, "span", {}, label);
    }
    return list;
  }
  const titleOf = (host) => host.closest("figure").querySelector("h3").textContent;
  const repaints = new Map();
  const repaint = () => repaints.forEach((paint) => paint());
  const live = document.getElementById("live");
  function tooltip(host) {
    const tip = add(host, "div", { class: "tip", "aria-hidden": "true" });
    return {
      show(x, y, lines, say) {
        tip.replaceChildren();
        lines.forEach((line, index) => add(tip, index ? "span" : "b", {}, line));
        tip.style.visibility = "visible";
        const width = tip.offsetWidth, height = tip.offsetHeight;
        const left = x + 14 + width > host.clientWidth ? x - 14 - width : x + 14;
        tip.style.transform = `translate(${Math.max(0, Math.min(left, host.clientWidth - width))}px,${Math.max(0, Math.min(y - height / 2, host.clientHeight - height))}px)`;
        if (say) live.textContent = lines.join(", ");
      },
      hide() { tip.style.visibility = "hidden"; },
    };
  }
  /* Redraws a host at its width; `draw(svg, width, height)` returns the places that can be pointed at: [{x, y, lines}]. */
  function mount(host, summary, draw) {
    host.replaceChildren();
    const svg = add(host, "svg", { tabindex: 0, role: "img", "aria-label": `${titleOf(host)}. ${summary} Arrow keys read the values.` });
    const tip = tooltip(host);
    let places = [], current = -1, cursor = null, height = 0;
    function point(index, say) {
      if (!places.length) return;
      current = Math.max(0, Math.min(index, places.length - 1));
      const place = places[current];
      if (!cursor) cursor = add(svg, "line", { class: "cursor" });
      for (const [name, value] of Object.entries({ x1: place.x, x2: place.x, y1: 6, y2: height - 40 })) cursor.setAttribute(name, value);
      tip.show(place.x, place.y, place.lines, say);
    }
    function leave() { tip.hide(); if (cursor) cursor.remove(); cursor = null; current = -1; }
    function redraw() {
      const width = host.clientWidth;
      height = host.clientHeight;
      if (!width) return;
      svg.replaceChildren();
      cursor = null;
      svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      places = draw(svg, width, height) || [];
    }
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      point(nearest(places.map((place) => place.x), event.clientX - box.left), false);
    });
    svg.addEventListener("pointerleave", leave);
    svg.addEventListener("blur", leave);
    svg.addEventListener("keydown", (event) => {
      const page = Math.max(1, Math.round(places.length / 10));
      const step = { ArrowRight: 1, ArrowLeft: -1, PageDown: page, PageUp: -page, Home: -places.length, End: places.length }[event.key];
      if (event.key === "Escape") leave();
      if (step === undefined) return;
      event.preventDefault();
      point(current < 0 && step > 0 ? 0 : current + step, true);
    });
    repaints.set(host, redraw);
    new ResizeObserver(redraw).observe(host);
    redraw();
    return redraw;
  }
  function axes(svg, width, height, x, y) {
    const left = Math.max(...y.ticks.map((tick) => onAxis(y.kind, tick).length)) * 7 + 12;
    const box = { left: Math.max(left, 34), right: width - 18, top: 24, bottom: height - 40 };
    const sx = scale(x.low, x.high, box.left, box.right), sy = scale(y.low, y.high, box.bottom, box.top);
    for (const tick of y.ticks) {
      add(svg, "line", { class: "gridline", x1: box.left, x2: box.right, y1: sy(tick), y2: sy(tick) });
      add(svg, "text", { x: box.left - 7, y: sy(tick) + 4, "text-anchor": "end" }, onAxis(y.kind, tick));
    }
    const room = x.kind === "time" ? 84 : 62;
    const marks = x.centered
      ? ticks("count", x.low, x.high - 1, (box.right - box.left) / room).map((tick) => [tick + 0.5, tick])
      : ticksThatFit(x.kind, x.low, x.high, box.right - box.left, room).map((tick) => [tick, tick]);
    for (const [place, tick] of marks) {
      const at = sx(place), text = onAxis(x.kind, tick);
      const half = text.length * 3.6;
      const anchor = at + half > width ? "end" : at - half < 0 ? "start" : "middle";
      add(svg, "line", { class: "axis", x1: at, x2: at, y1: box.bottom, y2: box.bottom + 4 });
      add(svg, "text", { x: anchor === "end" ? width - 2 : at, y: box.bottom + 18, "text-anchor": anchor }, text);
    }
    add(svg, "line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom });
    add(svg, "text", { x: box.right, y: height - 5, "text-anchor": "end" }, x.label);
    add(svg, "text", { x: 2, y: 10 }, y.label);
    return { box, sx, sy };
  }

  /* Of the places [x, anchor, baseline] for a text of a width, the first that no curve (points, null where it is broken)
     passes through, else the one that is touched least. */
  function clearest(places, width, curves) {
    const touched = ([x, anchor, base]) => {
      const left = anchor === "start" ? x : anchor === "end" ? x - width : x - width / 2, right = left + width;
      let hits = 0;
      for (const points of curves) {
        points.forEach((to, index) => {
          const from = points[index - 1] || to;
          if (to === null || from === null || to[0] < left || from[0] > right) return;
          const at = (px) => from[1] + ((px - from[0]) / (to[0] - from[0] || 1)) * (to[1] - from[1]);
          const ends = [at(Math.max(left, from[0])), at(Math.min(right, to[0]))];
          hits += Math.min(...ends) < base + 5 && Math.max(...ends) > base - 14;
        });
      }
      return hits;
    };
    const hits = places.map(touched);
    return places[hits.indexOf(Math.min(...hits))];
  }

  // -- charts -----------------------------------------------------------------------------------------------------------
  /* spec: x {kind, label, values}, y {kind, label, zero}, series [{label, color, values, fill, dash, points}],
     target {value, at, label}. */
  function lines(host, summary, spec) {
    const { x, y, series, target } = spec;
    return mount(host, summary, (svg, width, height) => {
      let [low, high] = extent(series.flatMap((s) => s.values).concat(target ? [target.value] : []));
      if (!Number.isFinite(low)) [low, high] = [0, 1];
      if (y.zero || low > 0 && low < 0.5 * high) low = Math.min(low, 0);
      if (high === low) high = low + 1;
      let marks = ticks(y.kind, low, high, height / 48);
      const step = marks.length > 1 ? marks[1] - marks[0] : high - low;
      high = Math.ceil(high / step - 1e-9) * step;
      if (y.kind === "share" && high > 1 && extent(series.flatMap((s) => s.values))[1] <= 1) high = 1;
      low = Math.floor(low / step + 1e-9) * step;
      marks = ticks(y.kind, low, high, height / 48);
      const [first, last] = extent(x.values);
      const { box, sx, sy } = axes(svg, width, height,
        { kind: x.kind, label: x.label, low: x.zero === false ? first : Math.min(0, first), high: last },
        { kind: y.kind, label: y.label, low, high, ticks: marks });
      if (target) {
        add(svg, "line", { x1: box.left, x2: box.right, y1: sy(target.value), y2: sy(target.value), style: "stroke:var(--waiting);stroke-width:2", "stroke-dasharray": "6 4" });
      }
      for (const s of series) {
        let path = "", open = false;
        s.values.forEach((value, index) => {
          if (value === null) { open = false; return; }
          path += `${open ? "L" : "M"}${sx(x.values[index]).toFixed(2)} ${sy(value).toFixed(2)}`;
          open = true;
        });
        if (s.fill && path) add(svg, "path", { d: `${path}L${sx(last)} ${sy(low)}L${sx(first)} ${sy(low)}Z`, style: `fill:var(--${s.color});opacity:.22` });
        add(svg, "path", { d: path, fill: "none", style: `stroke:var(--${s.color});stroke-width:${s.dash ? 1.5 : 2.25};stroke-linejoin:round`, "stroke-dasharray": s.dash || "" });
        if (s.points && s.values.length <= 90) {
          s.values.forEach((value, index) => value !== null && add(svg, "circle", { cx: sx(x.values[index]), cy: sy(value), r: 2.75, style: `fill:var(--${s.color})` }));
        }
      }
      if (target) {
        const cy = sy(target.value);
        const drawn = series.map((s) => s.values.map((value, index) => (value === null ? null : [sx(x.values[index]), sy(value)])));
        const note = (text, places) => {
          const [place, anchor, base] = clearest(places, text.length * 7.5, drawn);
          add(svg, "text", { class: "note", x: place, y: base, "text-anchor": anchor }, text);
        };
        note(target.label, [[box.left + 6, "start"], [box.right - 10, "end"], [(box.left + box.right) / 2, "middle"]]
          .flatMap(([place, anchor]) => [[place, anchor, cy - 7], [place, anchor, cy + 17]])
          .filter(([, , base]) => base > box.top - 6 && base < box.bottom));
        if (target.at !== null) {
          const cx = sx(target.at), text = show(x.kind, target.at);
          add(svg, "line", { x1: cx, x2: cx, y1: cy, y2: box.bottom, style: "stroke:var(--waiting);stroke-width:2", "stroke-dasharray": "6 4" });
          add(svg, "circle", { cx, cy, r: 6, style: "fill:var(--waiting);stroke:var(--card);stroke-width:2" });
          const [place, anchor] = cx + 8 + text.length * 7.5 < width ? [cx + 8, "start"] : [cx - 8, "end"];
          note(text, [[place, anchor, box.bottom - 8], [place, anchor, (cy + box.bottom) / 2]]);
        }
      }
      const shown = series.filter((s) => !s.silent);
      return x.values.map((value, index) => {
        const seen = shown.find((s) => s.values[index] !== null);
        return {
          x: sx(value),
          y: seen ? sy(seen.values[index]) : box.top,
          lines: [`${x.label} ${show(x.kind, value)}`, ...shown.map((s) => `${s.label} ${show(s.kind || y.kind, s.values[index])}`)],
        };
      });
    });
  }
  /* Stacked columns over bins. spec: x {kind, label, from, to, whole}, y {label}, series [{label, color, values}]. */
  function columns(host, summary, spec) {
    const { x, y, series } = spec;
    const ends = x.whole ? x.to.map((value) => value + 1) : x.to;
    const totals = x.from.map((_, index) => series.reduce((sum, s) => sum + s.values[index], 0));
    return mount(host, summary, (svg, width, height) => {
      const most = Math.max(1, ...totals);
      const marks = ticks("count", 0, most, height / 48);
      const step = marks.length > 1 ? marks[1] - marks[0] : 1;
      const high = Math.ceil(most / step - 1e-9) * step;
      const centered = x.whole && ends[0] - x.from[0] === 1;
      const { box, sx, sy } = axes(svg, width, height,
        { kind: x.kind, label: x.label, low: x.from[0], high: ends[ends.length - 1], centered },
        { kind: "count", label: y.label, low: 0, high, ticks: ticks("count", 0, high, height / 48) });
      return x.from.map((from, index) => {
        const a = sx(from), b = sx(ends[index]), gap = Math.min(2, (b - a) * 0.2);
        let base = 0;
        for (const s of series) {
          const value = s.values[index];
          if (!value) continue;
          const top = sy(base + value);
          const tall = sy(base) - top;
          // A sliver is still drawn, so that a rare bin is not taken for an empty one.
          add(svg, "rect", { x: a + gap / 2, width: Math.max(b - a - gap, 1), y: Math.min(top, sy(base) - 1.5), height: Math.max(tall, 1.5), style: `fill:var(--${s.color})` });
          base += value;
        }
        const name = x.whole
          ? (x.from[index] === x.to[index] ? show(x.kind, from) : `${show(x.kind, from)} to ${show(x.kind, x.to[index])}`)
          : `${show(x.kind, from)} to ${show(x.kind, x.to[index])}`;
        return {
          x: (a + b) / 2, y: sy(totals[index]),
          lines: [`${x.label} ${name}`, ...series.filter((s) => s.values[index]).map((s) => `${s.label} ${show("count", s.values[index])}`), ...(totals[index] ? [] : ["none"])],
        };
      });
    });
  }

  // -- canvases ---------------------------------------------------------------------------------------------------------
  const probe = add(document.body, "span", { class: "unseen", "aria-hidden": "true" });
  function color(name) {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  }
  function canvas(host, label, paint) {
    host.replaceChildren();
    const element = add(host, "canvas", { tabindex: 0, role: "img", "aria-label": label });
    const redraw = () => {
      const width = host.clientWidth, height = host.clientHeight, ratio = window.devicePixelRatio || 1;
      if (!width) return;
      element.width = Math.round(width * ratio);
      element.height = Math.round(height * ratio);
      const context = element.getContext("2d");
      context.scale(ratio, ratio);
      context.font = "12px system-ui, sans-serif";
      paint(context, width, height);
    };
    repaints.set(host, redraw);
    new ResizeObserver(redraw).observe(host);
    return { element, redraw };
  }
  /* A matrix of counts. spec: columns {label, names}, rows {label, names}, values [row][column]. */
  function heat(host, summary, spec) {
    const { rows, columns: across, values } = spec;
    const most = Math.max(1, ...values.map((row) => Math.max(...row)));
    const box = { left: 46, top: 22, right: 10, bottom: 34 };
    let at = null, cell = null;
    const place = () => ({
      width: (host.clientWidth - box.left - box.right) / across.names.length,
      height: (host.clientHeight - box.top - box.bottom) / rows.names.length,
    });
    const { element, redraw } = canvas(host, `${titleOf(host)}. ${summary} Arrow keys read the cells.`, (context, width, height) => {
      cell = place();
      const ink = color("cell"), muted = color("muted");
      context.fillStyle = color("grid");
      context.fillRect(box.left, box.top, width - box.left - box.right, height - box.top - box.bottom);
      context.fillStyle = ink;
      const gap = cell.width > 4 ? 1 : 0;
      values.forEach((row, r) => row.forEach((value, c) => {
        if (!value) return;
        context.globalAlpha = 0.12 + 0.88 * Math.sqrt(value / most);
        context.fillRect(box.left + c * cell.width, box.top + r * cell.height, cell.width - gap, cell.height - (cell.height > 4 ? 1 : 0));
      }));
      context.globalAlpha = 1;
      context.fillStyle = muted;
      context.textAlign = "right";
      const every = Math.ceil(14 / cell.height);
      rows.names.forEach((name, r) => { if (r % every === 0) context.fillText(name, box.left - 6, box.top + (r + 0.5) * cell.height + 4); });
      context.textAlign = "center";
      const skip = Math.max(1, niceStep(across.names.length, (width - box.left - box.right) / 48));
      across.names.forEach((name, c) => { if (c % skip === 0) context.fillText(name, box.left + (c + 0.5) * cell.width, height - box.bottom + 14); });
      context.textAlign = "right";
      context.fillText(across.label, width - box.right, height - 4);
      context.textAlign = "left";
      context.fillText(rows.label, 2, 11);
      if (at) {
        context.strokeStyle = color("text");
        context.lineWidth = 2;
        context.strokeRect(box.left + at.c * cell.width, box.top + at.r * cell.height, cell.width, cell.height);
      }
    });
    const tip = tooltip(host);
    function point(r, c, say) {
      at = { r: Math.max(0, Math.min(r, rows.names.length - 1)), c: Math.max(0, Math.min(c, across.names.length - 1)) };
      redraw();
      tip.show(box.left + (at.c + 0.5) * cell.width, box.top + (at.r + 0.5) * cell.height,
        [`${across.label} ${across.names[at.c]}`, `${rows.label} ${rows.names[at.r]}: ${show("count", values[at.r][at.c])} samples`], say);
    }
    const leave = () => { at = null; tip.hide(); redraw(); };
    element.addEventListener("pointermove", (event) => {
      const area = element.getBoundingClientRect();
      point(Math.floor((event.clientY - area.top - box.top) / cell.height), Math.floor((event.clientX - area.left - box.left) / cell.width), false);
    });
    element.addEventListener("pointerleave", leave);
    element.addEventListener("blur", leave);
    element.addEventListener("keydown", (event) => {
      const move = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
      if (event.key === "Escape") leave();
      if (!move) return;
      event.preventDefault();
      const from = at || { r: 0, c: -1 };
      point(from.r + move[0], from.c + move[1], true);
    });
  }

  // -- tables -----------------------------------------------------------------------------------------------------------
  const SHOWN = 500;
  // A CSV cell; text that a spreadsheet would run as a formula begins with a quote, as in csv_text.
  function cell(value) {
    if (typeof value !== "string") return value;
    const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }
  function table(details, figure) {
    const build = () => {
      if (!details.open || details.dataset.built) return;
      details.dataset.built = "yes";
      const shown = figure.columns.filter((column) => column.values.length === figure.columns[0].values.length);
      const count = shown[0].values.length;
      const scroll = add(details, "div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Numbers" });
      const grid = add(scroll, "table");
      const head = add(add(grid, "thead"), "tr");
      for (const column of shown) add(head, "th", { scope: "col", class: column.kind === "text" ? "" : "number" }, column.label);
      const body = add(grid, "tbody");
      for (let row = 0; row < Math.min(count, SHOWN); row += 1) {
        const line = add(body, "tr");
        for (const column of shown) add(line, "td", { class: column.kind === "text" ? "" : "number" }, show(column.kind, column.values[row]));
      }
      const foot = add(details, "p", { class: "hint" });
      const button = add(foot, "button", { type: "button", class: "quiet" }, "Save all as CSV");
      if (count > SHOWN) foot.append(` The first ${SHOWN} of ${show("count", count)} rows are listed.`);
      button.addEventListener("click", () => {
        const rows = Array.from({ length: count }, (_, row) => shown.map((c) => cell(c.values[row] ?? "")));
        const text = [shown.map((c) => cell(c.key)), ...rows].map((line) => line.join(",")).join("\n");
        const link = document.createElement("a");
        link.href = URL.createObjectURL(new Blob([text + "\n"], { type: "text/csv" }));
        link.download = `${details.dataset.table}.csv`;
        link.click();
        URL.revokeObjectURL(link.href);
      });
    };
    details.addEventListener("toggle", build);
  }

  // -- theme ------------------------------------------------------------------------------------------------------------
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const THEMES = ["auto", "light", "dark"];
  function setTheme(theme) {
    if (theme === "auto") delete root.dataset.theme; else root.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
    repaint();
  }
  let theme = "auto";
  try { theme = THEMES.find((name) => name === localStorage.getItem("fedsim-theme")) || "auto"; } catch { /* storage is switched off */ }
  setTheme(theme);
  button.addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    try { localStorage.setItem("fedsim-theme", theme); } catch { /* storage is switched off */ }
    setTheme(theme);
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  // Paper is light, and narrower than a screen: charts are drawn for its width, or their words would shrink with them.
  window.addEventListener("beforeprint", () => { root.dataset.theme = "light"; root.classList.add("printing"); repaint(); });
  window.addEventListener("afterprint", () => { root.classList.remove("printing"); setTheme(theme); });

  const data = JSON.parse(document.getElementById("data").textContent);
  const column = (figure, key) => data[figure].columns.find((c) => c.key === key);
  return { data, column, show, onAxis, ticks, ticksThatFit, scale, extent, add, mount, axes, legend, lines, columns, heat, table, canvas, color, tooltip, titleOf };
})();
