/* Charts on Apache ECharts. ECharts draws; reading with pointer and keyboard, zooming, legends, tables, saving and themes
   are here, the same for every figure. What is under the pointer is read out below a chart, so that nothing covers its data. */
const fedsim = (() => {
  const show = format.value, onAxis = format.tick;
  const data = JSON.parse(document.getElementById("data").textContent);
  const column = (figure, key) => data[figure].columns.find((c) => c.key === key);

  // -- scales -----------------------------------------------------------------------------------------------------------
  const SCALES = {
    linear: { to: (v) => v, from: (v) => v, holds: () => true },
    log: { to: Math.log10, from: (v) => 10 ** v, holds: (v) => v > 0 },
    logit: { to: (v) => Math.log(v / (1 - v)), from: (v) => 1 / (1 + Math.exp(-v)), holds: (v) => v > 0 && v < 1 },
  };
  const TIME_STEPS = [1, 2, 5, 10, 15, 30]
    .concat([1, 2, 5, 10, 15, 30].map((m) => m * 60))
    .concat([1, 2, 3, 6, 12].map((h) => h * 3600))
    .concat([1, 2, 5, 7, 14, 28, 70, 140, 365].map((d) => d * 86400));
  const POWERS = Array.from({ length: 34 }, (_, k) => 10 ** (k - 15));
  const LEVELS = [0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 1e-3, 1e-4, 1e-5, 1e-6];
  const ROUND = {
    log: (kind) => (kind === "time"
      ? [...POWERS.filter((s) => s < 11), ...[1, 10, 60, 360, 1440, 14400, 144000].map((m) => m * 60)]
      : POWERS.flatMap((power) => [power, 2 * power, 5 * power])),
    logit: () => [...LEVELS].reverse().concat(LEVELS.slice(1).map((level) => 1 - level)),
  };
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
  /* Ticks of a horizontal axis, as many as fit side by side with at least this many pixels each. */
  function ticksThatFit(kind, low, high, pixels, least) {
    const all = ticks(kind, low, high, pixels / least);
    const widest = Math.max(0, ...all.map((tick) => onAxis(kind, tick, high).length)) * 7.2 + 14;
    return widest <= least ? all : ticks(kind, low, high, pixels / widest);
  }
  /* An axis from `low` to `high` over `pixels`: what ECharts draws, and where a value lies. */
  function axis({ kind, low, high, scale = "linear", pixels, horizontal, label = (tick) => onAxis(kind, tick, scale === "linear" || high < 1 ? high : tick), marks }) {
    const { to, from } = SCALES[scale];
    const [a, b] = [to(low), to(high)];
    const at = (value) => ((to(value) - a) / (b - a || 1)) * pixels;
    let found = marks;
    if (!found && scale === "linear") found = horizontal ? ticksThatFit(kind, low, high, pixels, Math.min(84, Math.max(56, pixels / 4))) : [36, 18].map((room) => ticks(kind, low, high, pixels / room)).find((each, k) => k || each.length > 2);
    if (!found) {
      const room = horizontal ? 74 : 20, count = pixels / (horizontal ? 84 : 36);
      const spaced = (all) => {
        let last = -Infinity;
        return all.filter((mark) => low <= mark && mark <= high && SCALES[scale].holds(mark)
          && at(mark) - last >= room && ((last = at(mark)), true));
      };
      // Narrow ranges have few round marks, or few with room beside each other.
      const candidates = [kind === "time" && scale === "log" ? [1e-3, 1, 60, 3600, 86400, 2592000] : [], ROUND[scale](kind), kind === "time" ? [...ROUND.log("number").filter((s) => s < 1), ...TIME_STEPS] : [], ticks(kind, low, high, count), ticks(kind, low, high, 3 * count)].map(spaced);
      found = candidates.find((each) => each.length > 2) ?? candidates.reduce((best, each) => (each.length > best.length ? each : best));
    }
    const places = found.map(to), texts = found.map(label);
    // A last label that would extend beyond the figure ends where the axis ends.
    const crowded = horizontal && found.length > 0 && at(found.at(-1)) + textWidth(texts.at(-1)) / 2 > pixels + 16;
    const nearestText = (value) => texts[nearest(places, value)] ?? "";
    return {
      at, places, texts, to,
      value: (pixel) => from(a + (pixel / pixels) * (b - a)),
      option: {
        type: "value", min: a, max: b,
        axisLine: { show: horizontal, onZero: false, lineStyle: { color: ink("muted") } },
        axisTick: { show: horizontal, customValues: places, lineStyle: { color: ink("muted") } },
        axisLabel: { customValues: places, formatter: nearestText, color: ink("muted"), fontSize: 12, hideOverlap: horizontal, alignMaxLabel: crowded ? "right" : undefined },
        splitLine: { show: !horizontal, customValues: places, lineStyle: { color: ink("grid") } },
      },
    };
  }
  const extent = (values) => values.reduce(([a, b], v) => (v === null || v === undefined ? [a, b] : [Math.min(a, v), Math.max(b, v)]), [Infinity, -Infinity]);
  function nearest(sorted, value) {
    let low = 0, high = sorted.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (sorted[middle] < value) low = middle; else high = middle;
    }
    return Math.abs(sorted[low] - value) <= Math.abs(sorted[high] - value) ? low : high;
  }

  // -- elements and colors ------------------------------------------------------------------------------------------------
  const SVG = "http://www.w3.org/2000/svg";
  function add(parent, tag, attributes = {}, text) {
    const svg = parent.namespaceURI === SVG || tag === "svg";
    const element = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== undefined) element.textContent = text;
    parent.append(element);
    return element;
  }
  const probe = add(document.body, "span", { class: "unseen", "aria-hidden": "true" });
  const inks = new Map();
  /* A color of the style sheet in the current theme. */
  function ink(name) {
    if (!inks.has(name)) {
      probe.style.color = `var(--${name})`;
      inks.set(name, getComputedStyle(probe).color);
    }
    return inks.get(name);
  }
  const MARKS = {
    circle: "M-4 0A4 4 0 1 1 4 0A4 4 0 1 1 -4 0Z", rect: "M-3.6-3.6H3.6V3.6H-3.6Z", triangle: "M0-4.8L4.6 3.8H-4.6Z",
    diamond: "M0-5L5 0L0 5L-5 0Z", roundRect: "M-3.6-2.6L-2.6-3.6H2.6L3.6-2.6V2.6L2.6 3.6H-2.6L-3.6 2.6Z",
  };
  /* Lost work is hatched, so that outcomes differ in more than their colors: the slope of the lines, in pixels. */
  const HATCHES = { late: [6, 6], dropped: [-6, 6], cut: [0, 6], discarded: [6, 0], unfinished: [3, 3] };
  function fillOf(color, slope, onCanvas = false) {
    if (!slope) return ink(color);
    const canvas = document.createElement("canvas"), pen = canvas.getContext("2d");
    canvas.width = canvas.height = 6;
    Object.assign(pen, { fillStyle: ink(color), strokeStyle: ink("card"), lineWidth: 1.5 });
    pen.fillRect(0, 0, 6, 6);
    const [dx, dy] = slope, [x, y] = dx && dy ? [dx > 0 ? 0 : 6, 0] : [dx ? 0 : 3, dx ? 3 : 0];
    for (const shift of dx && dy ? [-6, 0, 6] : [0]) { pen.moveTo(x + shift - dx, y - dy); pen.lineTo(x + shift + 2 * dx, y + 2 * dy); }
    pen.stroke();
    return { type: "pattern", image: onCanvas ? canvas : canvas.toDataURL(), imageWidth: 6, imageHeight: 6, repeat: "repeat" };
  }
  const markPath = (symbol) => MARKS[symbol] || symbol.replace("path://", "");
  /* One entry of a legend: a line with a mark, a line, a mark, or a square. */
  function icon(parent, { color, line, dash = [], symbol, shape, thin, hatch, opacity = 1 }, at = {}) {
    const svg = add(parent, "svg", { width: line ? 30 : 16, height: 12, "aria-hidden": "true", ...at });
    const paint = at.x === undefined ? `var(--${color})` : ink(color);
    if (line) add(svg, "line", { x1: 0, x2: 30, y1: 6, y2: 6, style: `stroke:${paint};stroke-width:${thin ? 1.5 : 2.25}`, "stroke-dasharray": dash.map((d) => d * 2).join(" ") });
    if (line && symbol) add(svg, "path", { d: markPath(symbol), transform: "translate(15 6)", style: `fill:${paint}` });
    else if (shape && !hatch) add(svg, "path", { d: shape, transform: "translate(8 6)", style: `fill:${paint}` });
    else if (!line) {
      add(svg, "rect", { x: 1, y: 0, width: 12, height: 12, rx: 3, style: `fill:${paint};opacity:${opacity}` });
      const [dx, dy] = hatch ?? [];
      if (hatch) add(svg, "line", { x1: 7 - dx, x2: 7 + dx, y1: 6 - dy, y2: 6 + dy, style: `stroke:${at.x === undefined ? "var(--card)" : ink("card")};stroke-width:2` });
    }
  }
  /* A legend before a chart; with `toggle`, its entries are buttons, and each has room for the value that is read. */
  function legend(host, items, toggle) {
    const list = host.closest("figure").querySelector(".legend") ?? host.parentElement.insertBefore(document.createElement("ul"), host);
    list.className = "legend";
    const focused = list.contains(document.activeElement) ? document.activeElement.dataset.label : null;
    list.replaceChildren();
    for (const item of items) {
      const entry = add(list, "li");
      const holder = toggle ? add(entry, "button", { type: "button", "aria-pressed": String(!item.hidden), "data-label": item.label, title: "Show or hide" }) : entry;
      icon(holder, item);
      add(holder, "span", {}, item.label);
      if (toggle) {
        add(holder, "output", { "aria-hidden": "true" });
        holder.addEventListener("click", () => toggle(item.label));
        holder.addEventListener("pointerenter", () => emphasize(host, item.label));
        holder.addEventListener("pointerleave", () => emphasize(host, null));
        if (item.label === focused) holder.focus();
      }
    }
    legends.set(host, items.filter((item) => !item.hidden));
  }
  const legends = new Map();
  /* Fades all lines of a chart but one; none where the label is null. */
  function emphasize(host, label) {
    charts.get(host).only = label;
    charts.get(host).redraw();
  }
  /* The host of a small chart with its own title, number `place` of those in a container. */
  function cell(container, place, title) {
    const child = container.children[place] ?? add(container, "div");
    if (!child.firstChild) { add(child, "h4", {}, title); add(child, "div", { class: "chart", id: `${container.id}-${place}` }); }
    return child.lastChild;
  }
  const titleOf = (host) => host.closest("figure").querySelector("h3").textContent;
  const live = document.getElementById("live");

  /* Ends of the axis of simulated time, in pixels from both sides, in charts above each other; set by the timeline. */
  const aligned = { left: 0, right: 0 };
  const shares = (host, x) => x.label === "simulated time" && host.closest(".aligned") && host.clientWidth > WIDE && aligned.left > 0;
  /* Widths from which axes are aligned, and from which names and targets stand beside the plot instead of in it. */
  const WIDE = 640, ROOMY = 560;

  // -- one chart ----------------------------------------------------------------------------------------------------------
  const charts = new Map();
  const repaint = () => { inks.clear(); charts.forEach((each) => each.redraw()); };
  const BASE = () => ({ animation: false, textStyle: { fontFamily: "system-ui, sans-serif", color: ink("muted") }, backgroundColor: "transparent" });
  const words = (text, left, top, more = {}) => ({ type: "text", left, top, silent: true, z: 9, style: { text, fill: ink("muted"), font: "12px system-ui, sans-serif", ...more } });
  // Replaces earlier drawings: by default, ECharts keeps the children of a group.
  const group = (children) => ({ type: "group", $mergeChildren: false, children });
  const fits = (instance, host) => instance?.getWidth() === host.clientWidth && instance.getHeight() === host.clientHeight;
  /* An ECharts instance that follows the size of its host. `draw(width, height)` returns its option. */
  function mount(host, label, draw, renderer = "svg") {
    if (!charts.has(host)) {
      host.replaceChildren();
      const area = add(host, "div", { class: "area" });
      const entry = { area, instance: null, only: null };
      charts.set(host, entry);
      // It also reports the first size, in which the chart has been drawn already.
      new ResizeObserver(() => { if (!fits(entry.instance, host)) entry.redraw(); }).observe(host);
    }
    const entry = charts.get(host);
    for (const [name, value] of Object.entries({ tabindex: 0, role: "img", "aria-label": label })) host.setAttribute(name, value);
    entry.redraw = () => {
      const width = host.clientWidth, height = host.clientHeight;
      if (!width || !height) return;
      entry.instance ??= echarts.init(entry.area, null, { renderer, width, height });
      entry.option = { ...BASE(), ...draw(width, height) };
      // The old option may refer to rows that are gone, so a new size comes with the new option.
      const resized = !fits(entry.instance, host);
      entry.instance.setOption(entry.option, { notMerge: true, lazyUpdate: resized });
      if (resized) entry.instance.resize({ width, height });
    };
    entry.redraw();
    return entry;
  }
  /* A chart that is read along its horizontal axis. `draw(width, height, zoom)` returns `option`, the `box` of the plot,
     `places` [{x, lines, values, rect}], `zoomed(from, to)` if it can be zoomed, and `stride` if places form rows. */
  function plot(host, summary, draw) {
    const readout = host.parentElement.querySelector(`.readout[data-for="${host.id}"]`);
    const known = charts.get(host);
    const state = known?.state || { zoom: null, current: -1, drawn: null };
    const entry = mount(host, `${titleOf(host)}. ${summary} Arrow keys read the values.`, (width, height) => {
      state.drawn = draw(width, height, state.zoom, charts.get(host).only);
      const hint = state.drawn.zoomed ? `Drag to zoom${state.zoom ? ", double-click to see all" : ""}; arrow keys read the values.` : "Point, or use the arrow keys, to read the values.";
      if (readout) readout.dataset.hint = hint;
      leave();
      return state.drawn.option;
    });
    entry.state = state;
    entry.cursor ??= add(host, "div", { class: "cursor", hidden: "" });
    function point(index, say) {
      const { places, box } = state.drawn;
      if (!places.length) return;
      state.current = Math.max(0, Math.min(index, places.length - 1));
      const { x, rect, lines, values } = places[state.current];
      const around = rect || { left: x, top: box.top, width: 0, height: box.bottom - box.top };
      for (const [name, value] of Object.entries(around)) entry.cursor.style[name] = `${value}px`;
      entry.cursor.classList.toggle("cell", Boolean(rect));
      entry.cursor.hidden = false;
      const outputs = host.closest("figure").querySelectorAll(".legend output");
      if (readout) readout.textContent = (values && outputs.length ? lines.slice(0, 1) : lines).join(" · ");
      if (values) outputs.forEach((output) => { output.textContent = values[output.closest("button").dataset.label] ?? ""; });
      if (say) live.textContent = lines.join(", ");
    }
    function leave() {
      state.current = -1;
      const own = charts.get(host);
      if (own?.cursor) own.cursor.hidden = true;
      if (readout) readout.textContent = readout.dataset.hint ?? "";
      host.closest("figure").querySelectorAll(".legend output").forEach((output) => { output.textContent = ""; });
    }
    /* The other charts along the same axis, which share its cursor and its zoom. */
    const beside = () => [...charts.values()].filter((other) => other !== entry && state.drawn.along && other.state?.drawn?.along?.name === state.drawn.along.name);
    const zoom = (range) => [entry, ...beside()].forEach((each) => { each.state.zoom = range; each.redraw(); });
    const share = () => {
      const place = state.drawn.places[state.current];
      beside().forEach((other) => other.follow(place ? state.drawn.along.value(place.x) : null));
    };
    entry.zoom = zoom;
    entry.follow = (value) => {
      const { along, box, places } = state.drawn, x = value === null ? NaN : along.at(value);
      if (x >= box.left && x <= box.right) point(nearest(places.map((place) => place.x), x), false); else leave();
    };
    if (known) return entry;
    const pixel = (event) => event.clientX - host.getBoundingClientRect().left;
    let from = null, band = null;
    const clamp = (x) => Math.max(state.drawn.box.left, Math.min(x, state.drawn.box.right));
    host.addEventListener("pointerdown", (event) => {
      if (!state.drawn.zoomed || event.button || event.pointerType === "touch") return;
      from = clamp(pixel(event));
      host.setPointerCapture(event.pointerId);
    });
    host.addEventListener("pointermove", (event) => {
      const x = pixel(event), y = event.clientY - host.getBoundingClientRect().top;
      if (from !== null && Math.abs(x - from) > 4) {
        band ??= add(host, "div", { class: "zoomband" });
        const [a, b] = [from, clamp(x)].sort((p, q) => p - q);
        Object.assign(band.style, { left: `${a}px`, width: `${b - a}px`, top: `${state.drawn.box.top}px`, height: `${state.drawn.box.bottom - state.drawn.box.top}px` });
      }
      const { places, hit } = state.drawn;
      const index = hit ? hit(x, y) : nearest(places.map((place) => place.x), x);
      if (index >= 0) point(index, false); else leave();
      share();
    });
    const finish = (event) => {
      if (band) {
        band.remove();
        const ends = [from, clamp(pixel(event))].sort((p, q) => p - q);
        if (event.type === "pointerup" && ends[1] - ends[0] > 6) zoom(state.drawn.zoomed(...ends));
      }
      from = band = null;
    };
    host.addEventListener("pointerup", finish);
    host.addEventListener("pointercancel", finish);
    host.addEventListener("dblclick", () => zoom(null));
    for (const name of ["pointerleave", "blur"]) host.addEventListener(name, () => { leave(); share(); });
    host.addEventListener("keydown", (event) => {
      const { places, box, zoomed, stride } = state.drawn;
      const page = Math.max(1, Math.round(places.length / 10));
      const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: stride, ArrowUp: -stride, PageDown: page, PageUp: -page, Home: -places.length, End: places.length }[event.key];
      const around = places[state.current]?.x ?? (box.left + box.right) / 2, quarter = (box.right - box.left) / 4;
      if (event.key === "Escape") leave();
      else if ((event.key === "+" || event.key === "=") && zoomed) zoom(zoomed(clamp(around - quarter), clamp(around + quarter)));
      else if ((event.key === "-" || event.key === "0") && zoomed) zoom(null);
      else if (step) point(state.current < 0 && step > 0 ? 0 : state.current + step, true);
      else return;
      share();
      event.preventDefault();
    });
    return entry;
  }
  /* A name as an axis shows it: names often begin alike, so it is cut in its middle. */
  const short = (name, most = 18) => {
    const text = String(name), half = (most - 1) >> 1;
    return text.length > most ? `${text.slice(0, half)}…${text.slice(-half)}` : text;
  };
  const textWidth = (() => {
    const context = document.createElement("canvas").getContext("2d");
    return (text, font = "12px system-ui, sans-serif") => { context.font = font; return context.measureText(text).width; };
  })();

  // -- charts -----------------------------------------------------------------------------------------------------------
  /* Exponential moving average without a bias toward zero at its beginning. */
  function smoothed(values, weight) {
    if (!weight) return values;
    let sum = 0, whole = 0;
    return values.map((value) => {
      if (value === null) return null;
      sum = weight * sum + (1 - weight) * value;
      whole = weight * whole + (1 - weight);
      return sum / whole;
    });
  }
  /* The range of the late part of curves, with the last and the best value of each and, with `reach`, the marks, if the
     early part would compress it on a linear scale. The rule is that of late_range in fedsim/analysis/comparison/curves.py; a test compares both. */
  function lateRange({ x, lists, kind, higher, scales = {}, marks = [], reach = false }) {
    if (scales.y !== "linear" || scales.x === "log") return null;
    const from = x[0] + 0.15 * (x.at(-1) - x[0]);
    const known = lists.map((list) => list.filter((value) => value !== null));
    const wanted = reach ? marks : [];
    const [first, last] = extent([...known.flat(), ...wanted]);
    const ends = extent([
      ...lists.flatMap((list) => list.filter((_, index) => x[index] >= from)),
      ...known.flatMap((list) => (list.length ? [list.at(-1), extent(list)[higher ? 1 : 0]] : [])),
    ]);
    const [low, high] = extent([...ends, ...wanted]);
    if (!(ends[1] > ends[0]) || high - low > 0.6 * (last - first)) return null;
    // Room above and below, but not beyond the possible values.
    const room = 0.06 * (high - low);
    const range = [low >= 0 ? Math.max(low - room, 0) : low - room, kind === "share" && high <= 1 ? Math.min(high + room, 1) : high + room];
    // A target at the very edge of the range would be hidden by the axis.
    const margin = 0.04 * (range[1] - range[0]);
    for (const value of marks) {
      if (Math.abs(value - range[0]) < margin) range[0] = value - margin;
      if (Math.abs(value - range[1]) < margin) range[1] = value + margin;
    }
    return range;
  }
  /* The vertical range that the reader has chosen: `range`, or null for all values. `kind` is that of the values of a late
     range; without it, the range is that of --ylim. */
  function focus(range, kind) {
    const box = document.getElementById("focus"), used = range && box.checked ? range : null;
    // It keeps its place, so that nothing moves.
    box.parentElement.style.visibility = range ? "" : "hidden";
    document.getElementById("focus_name").textContent = kind ? "late range" : "range of --ylim";
    document.getElementById("clipped").textContent = used && kind ? `Values outside ${show(kind, used[0])} to ${show(kind, used[1])} are not shown; clear “late range” to see them.` : "";
    return used;
  }
  /* Nights, from 22 to 6 o'clock on the clock of the devices' trace, behind the plot; none that are too narrow to see. */
  const DAY = 86400, DUSK = 22 * 3600, NIGHT = 8 * 3600;
  function nights(x, first, last, box, px) {
    const began = data.online?.time_of_day_s, ranges = [];
    if (x.label !== "simulated time" || began == null || ((box.right - box.left) * DAY) / (last - first) < 8) return [];
    for (let dusk = DUSK - began - DAY; dusk < last; dusk += DAY) ranges.push({ from: dusk, to: dusk + NIGHT });
    return shaded(ranges, first, last, box, px, { fill: ink("muted"), opacity: 0.12 });
  }
  const shaded = (ranges, first, last, box, px, style) => ranges.map((range) => [range.from, range.to].map((value) => px(Math.max(first, Math.min(last, value)))))
    .filter(([from, to]) => to > from)
    .map(([from, to]) => ({ type: "rect", silent: true, z: -1, shape: { x: from, y: box.top, width: to - from, height: box.bottom - box.top }, style }));
  /* Lines. spec: x {kind, label, values, zero}, y {kind, label, zero, from, to}, scales {x, y}, smooth, bands, xlim, ylim,
     series [{label, color, dash, symbol, values, low, high, fill, points, step, silent, plain}], marks [{value, at}] of targets,
     shades [{from, to}] of the horizontal axis. */
  function curves(host, summary, spec) {
    const { x, y, series, marks = [], scales = {}, smooth = 0, bands = false } = spec;
    const xScale = SCALES[scales.x || "linear"], yScale = SCALES[scales.y || "linear"];
    return plot(host, summary, (width, height, zoom, only) => {
      const shown = series.map((s) => ({ ...s, raw: s.values, values: smoothed(s.values, s.silent ? 0 : smooth) }));
      const known = x.values.filter((_, index) => xScale.holds(x.values[index]) && shown.some((s) => s.values[index] !== null));
      let [first, last] = known.length ? extent(known) : [0, 1];
      if (x.zero !== false && !scales.x?.startsWith("log")) first = Math.min(0, first);
      if (last <= first) last = first + 1;
      if (series.some((s) => s.bare)) {
        // Points at the ends would lie on the axis.
        const gap = 0.04 * (xScale.to(last) - xScale.to(first));
        if (first) first = xScale.from(xScale.to(first) - gap);
        last = xScale.from(xScale.to(last) + gap);
      }
      [first, last] = zoom || spec.xlim?.map((v, k) => v ?? [first, last][k]) || [first, last];
      const inside = x.values.map((value) => first <= value && value <= last);
      // A value that still holds from before the view is in it, too.
      const before = x.values.findLastIndex((value) => value < first);
      if (before >= 0) inside[before] = true;
      const heights = shown.flatMap((s) => [s.values, ...(bands && s.low ? [s.low, s.high] : [])].flatMap((list) => list.filter((value, index) => inside[index] && value !== null && yScale.holds(value))));
      let [low, high] = extent([...heights, ...(zoom || spec.ylim ? [] : marks.filter((mark) => mark.reach).map((mark) => mark.value))]);
      if (!Number.isFinite(low)) [low, high] = [0.1, 0.9];
      if (y.zero && yScale === SCALES.linear) low = Math.min(low, 0);
      // Room above and below, but not beyond the possible values.
      const room = (yScale.to(high) - yScale.to(low)) * 0.06 || Math.abs(yScale.to(high)) * 0.1 || 1;
      const padded = [yScale.from(yScale.to(low) - room), yScale.from(yScale.to(high) + room)];
      low = y.zero && low === 0 ? 0 : yScale === SCALES.linear && low >= 0 ? Math.max(0, padded[0]) : padded[0];
      high = y.kind === "share" && high <= 1 ? Math.min(yScale === SCALES.linear ? 1 : padded[1], padded[1]) : padded[1];
      if (spec.ylim && !zoom) [low, high] = spec.ylim.map((v, k) => v ?? [low, high][k]);
      const visible = marks.filter((mark) => low <= mark.value && mark.value <= high).sort((a, b) => b.value - a.value);
      const shared = shares(host, x);
      const roomy = width > ROOMY;
      // Names cut to the same letters are useless; the legend has all.
      const read = shown.filter((s) => !s.silent), ends = spec.ends && roomy ? read.map((s) => short(s.label, width > 900 ? 26 : 18)) : [];
      if (new Set(ends).size < ends.length) ends.length = 0;
      const beside = !roomy ? [] : [...(spec.ends ? [] : visible.map((mark) => `target ${onAxis(y.kind, mark.value)}`)), ...ends];
      const margin = shared ? aligned.right : Math.max(0, ...beside.map((text) => textWidth(text))) + 18;
      const box = { top: marks.some((mark) => mark.at != null) ? 42 : 26, bottom: height - 40, right: width - margin, left: 0 };
      const ya = axis({ kind: y.kind, low, high, scale: scales.y || "linear", pixels: box.bottom - box.top, horizontal: false });
      box.left = shared ? aligned.left : Math.max(34, Math.max(0, ...ya.texts.map((text) => textWidth(text))) + 12);
      const xa = axis({ kind: x.kind, low: first, high: last, scale: scales.x || "linear", pixels: box.right - box.left, horizontal: true, ...(x.names ? { marks: [...new Set(x.values)], label: (value) => short(x.names[value]) } : x.ticks && !zoom && { marks: x.ticks }) });
      const px = (value) => box.left + xa.at(value), py = (value) => box.bottom - ya.at(Math.max(low, Math.min(high, value)));
      // A missing value has no place either: ECharts draws the step of the value before it up to its place.
      const pairs = (values) => values.flatMap((value, index) => (xScale.holds(x.values[index]) ? [value === null || !yScale.holds(value) ? [null, null] : [xScale.to(x.values[index]), yScale.to(value)]] : []));
      const halo = { stroke: ink("card"), lineWidth: 3 };
      const faint = (s) => (only !== null && only !== s.label ? 0.12 : 1);
      const line = (s, values, opacity, width_) => {
        const filled = s.values.reduce((count, value) => count + (value !== null), 0);
        const every = s.symbol && s.points !== true ? Math.max(1, Math.floor(filled / 9)) : 1;
        const offset = Math.floor(((s.place ?? 0) % 4) * 0.25 * every);
        const marked = s.symbol && opacity === 1 && (s.points !== true || filled <= 90);
        return {
          type: "line", name: s.label, data: pairs(values), silent: true, connectNulls: false, clip: true, step: s.step ? "end" : false,
          symbol: s.symbol || "none", showSymbol: Boolean(marked),
          symbolSize: (_, { dataIndex }) => (dataIndex % every === offset || every === 1 ? (s.large ? 12 : s.points ? 6.5 : 8) : 0),
          lineStyle: { color: ink(s.color), width: s.bare ? 0 : width_ ?? (s.thin && s.silent ? 1 : s.plain ? 1.5 : 2.25), type: s.dash?.length ? s.dash.map((d) => d * 2) : "solid", opacity: opacity * faint(s) * (s.thin && s.silent ? 0.45 : 1), cap: "butt" },
          itemStyle: { color: ink(s.color), borderColor: ink("card"), borderWidth: s.points ? 0 : 1, opacity: faint(s) },
          areaStyle: s.fill ? { color: ink(s.color), opacity: 0.18 } : undefined,
          emphasis: { disabled: true },
        };
      };
      const band = (s) => ({
        type: "custom", silent: true, clip: true, data: [[xScale.to(last), yScale.to(high)]],
        renderItem: () => {
          const path = (values, back) => {
            const points = [];
            let past = null;
            const order = values.map((_, index) => index).filter((index) => values[index] !== null && xScale.holds(x.values[index]));
            for (const index of order) {
              const at = [px(x.values[index]), py(values[index])];
              if (s.step && past) points.push([at[0], past[1]]);
              points.push(past = at);
            }
            return back ? points.reverse() : points;
          };
          return { type: "polygon", shape: { points: [...path(s.high, false), ...path(s.low, true)] }, style: { fill: ink(s.color), opacity: 0.15 * faint(s) } };
        },
      });
      // The name of a line is at its end, or as near as it touches no other name and, if possible, no line; in their order.
      const named = ends.flatMap((text, number) => {
        const s = read[number], index = s.values.findLastIndex((value, k) => value !== null && inside[k] && xScale.holds(x.values[k]));
        if (index < 0 || x.values[index] < first) return [];
        const end = py(s.values[index]);
        return [{ text, at: px(x.values[index]), end, wide: textWidth(text) + 12, top: end - 7, color: ink(s.color) }];
      }).sort((a, b) => a.end - b.end);
      const above = (b) => named.slice(0, named.indexOf(b)).filter((a) => a.at <= b.at + b.wide && b.at <= a.at + a.wide);
      for (let pass = 0; pass < 99; pass += 1) for (const b of named) for (const a of above(b)) {
        const push = Math.max(0, 14.01 - b.top + a.top) / 2;
        a.top = Math.max(box.top - 20, a.top - push);
        b.top = Math.min(box.bottom - 14, b.top + push);
      }
      for (const each of named) {
        const over = [...visible.map((mark) => mark.value), ...read.flatMap((other) => other.values.filter((value, k) => value !== null && px(x.values[k]) > each.at && px(x.values[k]) < each.at + each.wide))].map(py);
        const free = (top) => top > box.top - 20 && top < box.bottom - 14 && above(each).every((a) => top >= a.top + 14) && named.every((b) => !above(b).includes(each) || top <= b.top - 14);
        const tops = [0, -14, 14, -28, 28].map((by) => each.top + by).filter(free);
        each.top = tops.find((top) => over.every((level) => Math.abs(level - top - 7) > 8)) ?? each.top;
      }
      // The names of targets that would touch are one.
      const goals = visible.map((mark) => onAxis(y.kind, mark.value));
      for (let k = goals.length - 1; k > 0; k -= 1) if (py(visible[k].value) - py(visible[k - 1].value) < 15) goals[k - 1] += `, ${goals.splice(k, 1, "")}`;
      const notes = visible.flatMap((mark, k) => {
        const goal = goals[k] && `target ${goals[k]}`;
        // A level at the lower end is drawn above the axis, which would hide it.
        const level = Math.min(py(mark.value), box.bottom - 3), style = { stroke: ink("goal"), lineWidth: 1.5, lineDash: [6, 4] };
        const drawn = [
          { type: "line", silent: true, shape: { x1: box.left, x2: box.right, y1: level, y2: level }, style },
          spec.ends ? words(goal, Math.max(box.left + 6, textWidth(y.label) + 12), level - 15, { fill: ink("text"), ...halo })
            : roomy ? words(goal, box.right + 6, level - 7, { fill: ink("text") })
              : words(goal, width - 4 - textWidth(goal), 2 + 15 * k, { fill: ink("text") }),
        ];
        if (mark.at == null || mark.at < first || mark.at > last) return drawn;
        const at = px(mark.at), text = show(x.kind, mark.at), half = textWidth(text) / 2;
        drawn.push({ type: "line", silent: true, shape: { x1: at, x2: at, y1: box.top - 4, y2: box.bottom }, style });
        drawn.push({ type: "circle", silent: true, z: 9, shape: { cx: at, cy: level, r: 5 }, style: { fill: ink("goal"), stroke: ink("card"), lineWidth: 2 } });
        drawn.push(words(text, Math.max(box.left, Math.min(at - half, width - 2 * half - 2)), box.top - 18, { fill: ink("text") }));
        return drawn;
      });
      const places = x.values.flatMap((value, index) => {
        if (!inside[index] || value < first) return [];
        const values = Object.fromEntries(read.map((s) => {
          const spread = bands && s.low && s.low[index] !== null ? ` (${show(y.kind, s.low[index])} to ${show(y.kind, s.high[index])})` : "";
          return [s.label, show(s.kind || y.kind, s.values[index]) + spread];
        }));
        return [{ x: px(value), values, lines: [`${x.label} ${x.names ? x.names[value] : show(x.kind, value)}`, ...read.map((s) => `${s.label} ${values[s.label]}`)] }];
      });
      const lines = [
        ...(bands ? shown.filter((s) => s.high?.some((value) => value !== null)).map(band) : []),
        ...(smooth ? shown.filter((s) => !s.silent).map((s) => line({ ...s, symbol: null }, s.raw, 0.25, 1)) : []),
        ...shown.map((s) => line(s, s.values, 1)),
      ];
      const graphic = [
        ...nights(x, first, last, box, px), ...shaded(spec.shades ?? [], first, last, box, px, { fill: ink("accent-soft") }), ...notes,
        ...named.flatMap(({ text, at, end, top, color }) => [
          { type: "line", silent: true, shape: { x1: at + 3, y1: end, x2: at + 8, y2: top + 7 }, style: { stroke: color, lineWidth: 1 } },
          words(text, at + 10, top, { fill: color, ...halo }),
        ]),
      ];
      return plane(width, height, { box, x, y, xa, ya, places, series: lines, graphic });
    });
  }
  /* What `plot` needs of a chart with an axis in each direction. */
  function plane(width, height, { box, x, y, xa, ya, places, series, graphic = [] }) {
    const value = (pixel) => xa.value(pixel - box.left);
    return {
      box, places,
      zoomed: (a, b) => [value(a), value(b)],
      along: x.kind === "time" ? { name: x.label, at: (instant) => box.left + xa.at(instant), value } : null,
      option: {
        grid: { left: box.left, right: width - box.right, top: box.top, bottom: height - box.bottom },
        xAxis: xa.option, yAxis: ya.option, series,
        graphic: [...graphic, words(y.label, 2, 2), words(x.label, width - 18 - textWidth(x.label), height - 15)],
      },
    };
  }
  /* Stacked columns over bins. spec: x {kind, label, from, to, whole}, y {label}, series [{label, color, values}]. */
  function columns(host, summary, spec) {
    const { x, y, series } = spec;
    const ends = x.whole ? x.to.map((value) => value + 1) : x.to;
    const totals = x.from.map((_, index) => series.reduce((sum, s) => sum + s.values[index], 0));
    return plot(host, summary, (width, height, zoom) => {
      const [first, last] = zoom || [x.from[0], ends.at(-1)];
      const inView = x.from.map((from, index) => ends[index] > first && from < last);
      const high = Math.max(1, ...totals.filter((_, index) => inView[index])) * 1.06;
      const box = { top: 26, bottom: height - 40, right: width - 18, left: 0 };
      const ya = axis({ kind: "count", low: 0, high, pixels: box.bottom - box.top, horizontal: false });
      box.left = Math.max(34, Math.max(0, ...ya.texts.map((text) => textWidth(text))) + 12);
      // Bins of one whole number are named in their middle.
      const single = x.whole && ends[0] - x.from[0] === 1;
      const middle = single ? ticks("count", first, last - 1, (box.right - box.left) / 62) : null;
      const xa = axis({
        kind: x.kind, low: first, high: last, pixels: box.right - box.left, horizontal: true,
        marks: middle?.map((tick) => tick + 0.5), label: (tick) => onAxis(x.kind, middle ? tick - 0.5 : tick),
      });
      const px = (value) => box.left + xa.at(Math.max(first, Math.min(last, value))), py = (value) => box.bottom - ya.at(value);
      const drawn = { type: "custom", silent: true, clip: true, data: [[first, 0]], renderItem: () => {
        const children = [], fills = new Map(series.map((s) => [s, fillOf(s.color, s.hatch)]));
        x.from.forEach((from, index) => {
          if (!inView[index]) return;
          const a = px(from), b = px(ends[index]), gap = Math.min(2, (b - a) * 0.2);
          let base = 0;
          for (const s of series) {
            const value = s.values[index];
            if (!value) continue;
            // A sliver is still drawn, so that a small count does not look like an empty bin.
            const top = Math.min(py(base + value), py(base) - 1.5);
            children.push({ type: "rect", shape: { x: a + gap / 2, width: Math.max(b - a - gap, 1), y: top, height: py(base) - top }, style: { fill: fills.get(s) } });
            base += value;
          }
        });
        return group(children);
      } };
      const places = x.from.flatMap((from, index) => {
        if (!inView[index]) return [];
        const name = x.whole && from === x.to[index] ? show(x.kind, from) : `${show(x.kind, from)} to ${show(x.kind, x.to[index])}`;
        const values = series.filter((s) => s.values[index]).map((s) => `${s.label} ${show("count", s.values[index])}`);
        return [{ x: (px(from) + px(ends[index])) / 2, lines: [`${x.label} ${name}`, ...(values.length ? values : ["none"])] }];
      });
      return plane(width, height, { box, x, y, xa, ya, places, series: [drawn] });
    });
  }
  /* A matrix of counts. spec: columns {label, names}, rows {label, names}, values [row][column]. */
  function heat(host, summary, spec) {
    const { rows, columns: across, values } = spec;
    const margin = Math.max(46, ...rows.names.map((name) => textWidth(short(name)) + 14));
    const most = Math.max(1, ...values.map((row) => Math.max(...row)));
    const count = across.names.length;
    return plot(host, summary, (width, height) => {
      const box = { left: margin, top: 24, right: width - 12, bottom: height - 40 };
      const cell = { width: (box.right - box.left) / count, height: (box.bottom - box.top) / rows.names.length };
      const named = (names, room, horizontal) => {
        const skip = Math.max(1, Math.ceil(niceStep(names.length, room)));
        const marks = names.map((_, k) => k).filter((k) => k % skip === 0).map((k) => k + 0.5);
        return axis({ low: 0, high: names.length, pixels: 1, horizontal, marks, label: (place) => short(names[Math.floor(place)]) }).option;
      };
      const drawn = { type: "custom", silent: true, data: [[0, 0]], renderItem: () => group(values.flatMap((row, r) => row.flatMap((value, c) => (value ? [{
        type: "rect",
        shape: { x: box.left + c * cell.width, y: box.top + r * cell.height, width: cell.width - (cell.width > 4), height: cell.height - (cell.height > 4) },
        style: { fill: ink("cell"), opacity: 0.12 + 0.88 * Math.sqrt(value / most) },
      }] : [])))) };
      const places = values.flatMap((row, r) => row.map((value, c) => ({
        rect: { left: box.left + c * cell.width, top: box.top + r * cell.height, width: cell.width, height: cell.height },
        lines: [`${across.label} ${across.names[c]}`, `${rows.label} ${rows.names[r]}`, `${show("count", value)} samples`],
      })));
      return {
        box, places, stride: count,
        hit: (x, y) => {
          const c = Math.floor((x - box.left) / cell.width), r = Math.floor((y - box.top) / cell.height);
          return c >= 0 && c < count && r >= 0 && r < rows.names.length ? r * count + c : -1;
        },
        option: {
          grid: { left: box.left, right: width - box.right, top: box.top, bottom: height - box.bottom, show: true, backgroundColor: ink("grid"), borderWidth: 0 },
          xAxis: named(across.names, (box.right - box.left) / Math.max(48, ...across.names.map((name) => textWidth(short(name)) + 8)), true),
          yAxis: { ...named(rows.names, (box.bottom - box.top) / 14, false), inverse: true, splitLine: { show: false } },
          series: [drawn],
          graphic: [words(rows.label, 2, 2), words(across.label, box.right - textWidth(across.label), height - 15)],
        },
      };
    });
  }

  // -- tables and files -------------------------------------------------------------------------------------------------
  const SHOWN = 500;
  const whole = (figure) => figure.columns.filter((each) => each.values.length === figure.columns[0].values.length);
  function table(details, figure) {
    details.querySelectorAll(":scope > :not(summary)").forEach((element) => element.remove());
    const build = () => {
      if (!details.open || details.querySelector("table")) return;
      const shown = whole(figure()), count = shown[0].values.length;
      const scroll = add(details, "div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Numbers: ${titleOf(details)}` });
      const grid = add(scroll, "table");
      const head = add(add(grid, "thead"), "tr");
      for (const each of shown) add(head, "th", { scope: "col", class: each.kind === "text" ? "" : "number" }, each.label);
      const body = add(grid, "tbody");
      for (let row = 0; row < Math.min(count, SHOWN); row += 1) {
        const line = add(body, "tr");
        for (const each of shown) add(line, "td", { class: each.kind === "text" ? "" : "number" }, show(each.kind, each.values[row]));
      }
      if (count > SHOWN) add(details, "p", { class: "hint" }, `The first ${SHOWN} of ${show("count", count)} rows are listed; the CSV file has all of them.`);
    };
    details.ontoggle = build;
    build();
  }
  // A CSV cell; text that a spreadsheet would run as a formula begins with a quote, as in csv_text.
  function csvCell(value) {
    if (typeof value !== "string") return value;
    const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }
  function csv(figure) {
    const shown = whole(figure);
    const rows = shown[0].values.map((_, row) => shown.map((each) => csvCell(each.values[row] ?? "")));
    return [shown.map((each) => csvCell(each.key)), ...rows].map((line) => line.join(",") + "\n").join("");
  }
  /* An SVG document in the current theme: a title, and what `fill` adds below it before it returns the height. */
  const FONT = "font-family:system-ui,sans-serif";
  function sheet(title, width, fill) {
    const svg = document.createElementNS(SVG, "svg");
    const background = add(svg, "rect", { width: "100%", fill: ink("card") });
    add(svg, "text", { x: 8, y: 22, style: `${FONT};font-size:16px;font-weight:600`, fill: ink("text") }, title);
    const height = Math.ceil(fill(svg));
    for (const [name, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) svg.setAttribute(name, value);
    background.setAttribute("height", height);
    return new XMLSerializer().serializeToString(svg);
  }
  /* A chart with its legend. */
  function picture(host) {
    const entry = charts.get(host), width = host.clientWidth, height = host.clientHeight;
    return sheet(titleOf(host), width, (svg) => {
      let x = 8, y = 34;
      for (const item of legends.get(host) || []) {
        const taken = (item.line ? 36 : 20) + textWidth(item.label, "13px system-ui, sans-serif") + 16;
        if (x + taken > width) { x = 8; y += 20; }
        icon(svg, item, { x, y });
        add(svg, "text", { x: x + (item.line ? 36 : 20), y: y + 10, style: `${FONT};font-size:13px`, fill: ink("muted") }, item.label);
        x += taken;
      }
      const top = y + (legends.has(host) ? 24 : 0);
      const copy = echarts.init(null, null, { renderer: "svg", ssr: true, width, height });
      copy.setOption(entry.option);
      const inner = new DOMParser().parseFromString(copy.renderToSVGString(), "image/svg+xml").documentElement;
      copy.dispose();
      inner.setAttribute("y", top);
      svg.append(inner);
      return top + height;
    });
  }
  /* Bars that are elements of the page, with their words, where the page shows them. */
  function snapshot(body) {
    const TOP = 36, frame = body.getBoundingClientRect();
    const at = (box) => ({ x: box.left - frame.left + 8, y: box.top - frame.top + TOP });
    return sheet(titleOf(body), frame.width + 16, (svg) => {
      for (const element of body.querySelectorAll("*")) {
        const { width, height, ...box } = element.getBoundingClientRect().toJSON(), style = getComputedStyle(element);
        if (!width || style.visibility === "hidden") continue;
        if (style.backgroundColor !== "rgba(0, 0, 0, 0)") add(svg, "rect", { ...at(box), width, height, rx: parseFloat(style.borderRadius) || 0, fill: style.backgroundColor });
        for (const node of element.childNodes) {
          if (node.nodeType !== Node.TEXT_NODE || !node.data.trim()) continue;
          const range = document.createRange();
          range.selectNodeContents(node);
          const { x, y } = at(range.getBoundingClientRect());
          add(svg, "text", { x, y: y + 0.8 * range.getBoundingClientRect().height, style: `${FONT};font-size:${style.fontSize};font-weight:${style.fontWeight}`, fill: style.color }, node.data.trim());
        }
      }
      return TOP + frame.height + 8;
    });
  }
  function download(name, content, type) {
    const href = URL.createObjectURL(new Blob([content], { type }));
    Object.assign(document.createElement("a"), { href, download: name }).click();
    URL.revokeObjectURL(href);
  }
  function png(text, done) {
    const image = new Image();
    image.onload = () => {
      const canvas = document.createElement("canvas");
      [canvas.width, canvas.height] = [2 * image.width, 2 * image.height];
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      canvas.toBlob(done);
    };
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  }
  /* The numbers of a figure, and the buttons that save it. `figure()` returns the current columns. */
  function files(name, figure = () => data[name]) {
    const card = document.getElementById(`figure-${name}`), bar = card?.querySelector(".save");
    if (!bar) return;
    const host = document.getElementById(`chart-${name}`), body = card.querySelector(".bar") && card.querySelector(".body");
    const drawn = host ? () => picture(host) : body && (() => snapshot(body));
    const save = {
      ...(drawn && { SVG: () => download(`${name}.svg`, drawn(), "image/svg+xml"), PNG: () => png(drawn(), (blob) => download(`${name}.png`, blob, "image/png")) }),
      CSV: () => download(`${name}.csv`, csv(figure()), "text/csv"),
    };
    bar.replaceChildren("Save ");
    for (const [kind, run] of Object.entries(save)) add(bar, "button", { type: "button", class: "quiet", "aria-label": `Save ${card.querySelector("h3").textContent} as ${kind}` }, kind).addEventListener("click", run);
    const details = card.querySelector("[data-table]");
    if (details) table(details, figure);
  }

  // -- theme and print ----------------------------------------------------------------------------------------------------
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
  // What is folded is printed, but for the scenario's file and the facts of the run.
  let folded = [];
  window.addEventListener("beforeprint", () => {
    root.dataset.theme = "light";
    root.classList.add("printing");
    folded = [...document.querySelectorAll("details:not(.card, .numbers, [open])")];
    folded.forEach((details) => { details.open = true; });
    repaint();
    // ECharts leaves words where they were in the old size until it draws again.
    repaint();
  });
  window.addEventListener("afterprint", () => {
    root.classList.remove("printing");
    folded.forEach((details) => { details.open = false; });
    setTheme(theme);
  });

  const finding = (name) => document.querySelector(`#figure-${name} .finding`).textContent;
  return {
    data, column, show, extent, aligned, WIDE, HATCHES, fillOf, cell, markPath, onAxis, ticksThatFit, axis, add, mount, words, group, legend, lateRange, focus, curves, columns, heat, files, csv, picture, snapshot, png, ink, finding, titleOf, textWidth, short, charts, live,
  };
})();
