/* The life of clients: one row per client with the time it was online, its charge, and its work; and a brush below that shows
   where in the run the view lies. From far away, dispatches are summed in small bins, so that a row never turns into dots. */
(() => {
  const host = document.getElementById("chart-timeline");
  if (!host) return;
  const { ink, show, words } = fedsim;
  const figure = fedsim.data.timeline, { clients, names, kinds, people, presence, pauses, rounds, battery } = figure;
  const called = (client) => fedsim.short(names ? names[client] : clients[client], host.clientWidth > fedsim.WIDE ? 18 : 9);
  const full = (client) => clients[client] < 0 ? names[client] : (names ? `Client ${clients[client]}, ${names[client]}` : `Client ${clients[client]}`);
  const values = (key) => fedsim.column("timeline", key)?.values;
  const readout = document.querySelector('.readout[data-for="chart-timeline"]');
  const PHASES = [["download", "dispatched_s", "downloaded_s"], ["compute", "downloaded_s", "computed_s"], ["upload", "computed_s", "arrived_s"]];
  const MARKS = {
    aggregated: "M-4 0A4 4 0 1 1 4 0A4 4 0 1 1 -4 0Z",
    late: "M0 -4.5L4.5 4L-4.5 4Z",
    dropped: "M-4 -2.6L-2.6 -4L0 -1.4L2.6 -4L4 -2.6L1.4 0L4 2.6L2.6 4L0 1.4L-2.6 4L-4 2.6L-1.4 0Z",
    cut: "M-3.6 -3.6L3.6 -3.6L3.6 3.6L-3.6 3.6Z",
    discarded: "M0 -5L5 0L0 5L-5 0Z",
    unfinished: "M-4.5 -1.5L4.5 -1.5L4.5 1.5L-4.5 1.5Z",
  };
  const ROW = 22, TOP = 8, BRUSH = 34, BOTTOM = 42 + BRUSH, MOST_ROWS = 24;
  const DETAIL = 5; // Width of a typical dispatch, in pixels, from which its phases are drawn.
  const BIN = 8;
  const time = Object.fromEntries(["dispatched_s", "downloaded_s", "computed_s", "arrived_s", "ended_s", "waited_s"].map((key) => [key, values(key)]));
  const outcome = values("outcome"), steps = values("steps_done"), version = values("version"), id = values("dispatch_id");
  const before = values("charge_before"), after = values("charge_after");
  const powered = (client) => battery !== null && battery.floor[client] !== null; // Other devices have no battery.
  const floors = [...new Set(clients.map((_, client) => client).filter(powered).map((client) => battery.floor[client]))].sort();
  const begin = time.dispatched_s, end = begin.map((_, index) => time.waited_s[index] ?? time.ended_s[index]);
  const own = clients.map(() => []), online = clients.map(() => []), paused = begin.map(() => []);
  figure.order.forEach((client, index) => own[client].push(index));
  presence?.row.forEach((client, k) => online[client].push([presence.from_s[k], presence.to_s[k]]));
  pauses?.row.forEach((index, k) => paused[index].push([pauses.from_s[k], pauses.to_s[k]]));
  /* The pauses of a dispatch between two instants, and the stretches in which it is at work. */
  const pausesOf = (index, a, b) => paused[index].filter(([from, to]) => from < b && to > a).map(([from, to]) => [Math.max(from, a), Math.min(to, b)]);
  function workOf(index, a, b) {
    const edges = [a, ...pausesOf(index, a, b).flat(), b], stretches = [];
    for (let k = 0; k < edges.length; k += 2) if (edges[k + 1] > edges[k] || edges.length === 2) stretches.push([edges[k], edges[k + 1]]);
    return stretches;
  }
  const seconds = (stretches) => stretches.reduce((sum, [from, to]) => sum + to - from, 0);
  const whole = [0, Math.max(figure.until_s, 1)];
  let left = 0, right = 0;
  /* On a wide page, the axes of all charts over time agree; beside the one of learning, a target has its name. */
  function margins(total) {
    const isWide = total > fedsim.WIDE, longest = Math.max(...clients.map((_, client) => fedsim.textWidth(called(client), "11px system-ui, sans-serif")));
    // Lamps are before the names.
    left = Math.max(isWide ? 54 : 0, 26 + longest);
    right = isWide ? (fedsim.data.learning ? 84 : 34) : rows.length > fits() ? 22 : 10;
    if (!isWide || fedsim.aligned.left === left) return;
    Object.assign(fedsim.aligned, { left, right });
    beside().forEach((other) => other.redraw());
  }
  const critical = clients.map(() => []);
  figure.path.row.forEach((client, k) => critical[client].push([figure.path.from_s[k], figure.path.to_s[k]]));

  // -- the rows, and the stretch of time ------------------------------------------------------------------------------------
  const by = (list, sign) => (a, b) => sign * ((list[a] ?? Infinity) - (list[b] ?? Infinity)) || a - b;
  const ORDERS = {
    ...(figure.path.row.length && { "longest on the critical path": by(people.path_s, -1) }),
    "most updates first": by(people.updates, -1), "fewest updates first": by(people.updates, 1),
    "most late updates first": by(people.late, -1), "most lost work first": by(people.lost, -1),
    "slowest first": by(people.step_s.map((s) => s ?? -1), -1), "fastest first": by(people.step_s, 1), "by number": by(clients.map(Math.abs), 1),
  };
  const speeds = people.step_s.filter(Number.isFinite).sort((a, b) => a - b), median = speeds[(speeds.length - 1) >> 1];
  const FILTERS = {
    "all clients": () => true, "with an update": (c) => people.updates[c] > 0, "without an update": (c) => !people.updates[c],
    ...(people.late.some(Boolean) && { "with a late update": (c) => people.late[c] > 0 }), "with lost work": (c) => people.lost[c] > 0,
    ...(median && { "slower than the median": (c) => people.step_s[c] > median, "as fast as the median, or faster": (c) => people.step_s[c] !== null && people.step_s[c] <= median }),
    ...(floors.length && { "whose battery ran low": (c) => powered(c) && own[c].some((i) => after[i] < battery.floor[c]) }),
    ...Object.fromEntries([...new Set(kinds ?? [])].sort().map((kind) => [`kind: ${kind}`, (c) => kinds[c] === kind])),
  };
  const sort = document.getElementById("sort"), filter = document.getElementById("filter"), search = document.getElementById("client");
  Object.keys(ORDERS).forEach((name) => sort.add(new Option(name)));
  Object.keys(FILTERS).forEach((name) => filter.add(new Option(name)));
  let rows = [], top = 0, row = 0, selected = null, view = [...whole];
  const fits = () => Math.min(rows.length, MOST_ROWS);
  function arrange() {
    rows = clients.map((_, client) => client).filter(FILTERS[filter.value])
      .sort((a, b) => (clients[a] >= 0) - (clients[b] >= 0) || ORDERS[sort.value](a, b)); // edge servers first
    top = row = 0;
    selected = null;
  }
  // -- drawing --------------------------------------------------------------------------------------------------------------
  const present = Object.keys(MARKS).filter((name) => outcome.includes(name));
  const updates = () => rounds.filter((t) => view[0] <= t && t <= view[1]);
  // Lines that would merge are not drawn.
  const apart = (seen) => seen.length * 7 <= width - left - right;
  // Lamps have the colors of phases, too.
  const phased = () => detailed || player.playing;
  const key = () => fedsim.legend(host, [
    ...(presence ? [{ label: "online", color: "shade" }] : []),
    ...(player.playing ? [{ label: presence ? "offline" : "not at work", color: "offline", opacity: 0.25 }] : []),
    ...(phased() ? PHASES.map(([name]) => ({ label: name, color: name })) : []),
    ...(phased() && pauses?.row.length ? [{ label: "paused while offline", color: "paused", line: true, thin: true }] : []),
    ...(phased() && time.waited_s.some((value) => value !== null) ? [{ label: "waiting", color: "waiting", line: true, thin: true }] : []),
    ...(floors.length ? [{ label: `charge (no work below ${floors.map((floor) => show("share", floor)).join(" or ")})`, color: "charge", line: true, thin: true }] : []),
    ...(figure.path.row.length ? [{ label: "critical path", color: "text", line: true }] : []),
    ...present.map((name) => ({ label: name, color: name, shape: detailed && MARKS[name], hatch: detailed ? null : fedsim.HATCHES[name] })),
    ...(rounds.length ? [{ label: apart(updates()) ? "server update" : "server update (when zoomed in)", color: "round", line: true, thin: true, dash: [1, 1] }] : []),
  ]);
  let width = 0, detailed = false, fills = {};
  const scale = () => (width - left - right) / (view[1] - view[0]);
  const sx = (value) => left + (Math.max(view[0], Math.min(view[1], value)) - view[0]) * scale();
  const inView = (index) => end[index] >= view[0] && begin[index] <= view[1];
  const rect = (x, y, w, h, fill, opacity = 1) => ({ type: "rect", shape: { x, y, width: w, height: h }, style: { fill, opacity } });

  function charge(client, y) {
    const points = [];
    const at = (t, level) => points.push([t, level]);
    let level = 1, since = 0;
    const until = (t) => {
      const full = since + (1 - level) / battery.per_s[client];
      if (full < t) at(full, 1);
      at(t, Math.min(1, level + battery.per_s[client] * (t - since)));
    };
    at(0, 1);
    for (const index of own[client]) {
      until(begin[index]);
      at(time.ended_s[index], after[index]);
      [since, level] = [time.ended_s[index], after[index]];
    }
    until(whole[1]);
    const first = Math.max(0, points.findIndex(([t]) => t >= view[0]) - 1), last = points.findIndex(([t]) => t > view[1]);
    const shown = points.slice(first, last < 0 ? undefined : last + 1);
    const clipped = shown.map(([t, share]) => [left + (t - view[0]) * scale(), y + ROW / 2 - 2 - share * (ROW - 4)]);
    return { type: "polyline", shape: { points: clipped }, style: { stroke: ink("charge"), lineWidth: 1.5, fill: "none" } };
  }
  /* The work of a row when zoomed out: a strip that is the darker, the larger the share of work in each bin; lost work is
     hatched, in its part of the height. */
  function sums(client, y) {
    const bins = new Map(), HIGH = ROW - 8;
    for (const index of own[client].filter(inView)) {
      for (const [from, to] of workOf(index, begin[index], time.ended_s[index])) {
        if (to < view[0] || from > view[1]) continue;
        const a = sx(from), b = Math.max(sx(to), a + 1);
        for (let bin = Math.floor(a / BIN); bin * BIN < b; bin += 1) {
          const share = (Math.min(b, (bin + 1) * BIN) - Math.max(a, bin * BIN)) / BIN;
          if (!bins.has(bin)) bins.set(bin, {});
          // A shown dispatch stands for those that are left out.
          bins.get(bin)[outcome[index]] = (bins.get(bin)[outcome[index]] || 0) + share * figure.every;
        }
      }
    }
    return [...bins].flatMap(([bin, shares]) => {
      const all = Object.values(shares).reduce((sum, share) => sum + share, 0);
      let base = y + HIGH / 2;
      return Object.keys(MARKS).filter((name) => shares[name]).map((name) => {
        const part = (HIGH * shares[name]) / all;
        base -= part;
        return rect(bin * BIN, base, BIN, part, fills[name], 0.35 + 0.65 * Math.ceil(4 * Math.min(1, all)) / 4);
      });
    });
  }
  function phases(client, y) {
    const children = [], marks = [];
    let last = -Infinity;
    for (const index of own[client].filter(inView)) {
      for (const [name, from, to] of PHASES) {
        const a = time[from][index];
        if (a === null) break;
        const b = time[to][index] ?? time.ended_s[index];
        if (b < view[0] || a > view[1]) continue;
        for (const [from, to] of pausesOf(index, a, b)) children.push(rect(sx(from), y - 1.5, sx(to) - sx(from), 3, ink("paused")));
        for (const [from, to] of workOf(index, a, b)) {
          if (to >= view[0] && from <= view[1]) children.push(rect(sx(from), y - 5, Math.max(sx(to) - sx(from), 0.8), 10, ink(name)));
        }
      }
      if (time.waited_s[index] !== null) children.push(rect(sx(time.arrived_s[index]), y - 1.5, Math.max(sx(time.waited_s[index]) - sx(time.arrived_s[index]), 0.8), 3, ink("waiting")));
      const at = sx(end[index]), lost = outcome[index] !== "aggregated";
      // Aggregated work may have no mark beside another one; lost work always has one, on top.
      if ((lost || at - last > 8) && end[index] <= view[1]) {
        last = at;
        marks.push({ type: "path", x: at, y, z2: lost ? 2 : 1, shape: { pathData: MARKS[outcome[index]] }, style: { fill: ink(outcome[index]), stroke: ink("card"), lineWidth: 1.5, strokeFirst: true } });
      }
    }
    // Marks are drawn on top of work that follows immediately.
    return [...children, ...marks];
  }
  function drawRow(place) {
    const client = rows[place], y = TOP + (place - top + 0.5) * ROW;
    const children = detailed ? phases(client, y) : sums(client, y);
    if (powered(client)) children.push(charge(client, y));
    for (const [from, to] of critical[client]) {
      if (to >= view[0] && from <= view[1]) children.push(rect(sx(from), y + ROW / 2 - 3, Math.max(sx(to) - sx(from), 1), 2.5, ink("text")));
    }
    if (selected !== null && figure.order[selected] === client && inView(selected)) {
      children.push({ type: "rect", shape: { x: sx(begin[selected]) - 2, y: y - 9, width: sx(end[selected]) - sx(begin[selected]) + 4, height: 18, r: 2 }, style: { fill: "none", stroke: ink("text"), lineWidth: 2 } });
    }
    return fedsim.group(children);
  }
  function drawOnline(place) {
    const y = TOP + (place - top) * ROW + 1, seen = online[rows[place]].filter(([from, to]) => to >= view[0] && from <= view[1]);
    return fedsim.group(seen.map(([from, to]) => rect(sx(from), y, Math.max(sx(to) - sx(from), 0.5), ROW - 2, ink("shade"))));
  }
  function drawRounds() {
    const seen = updates();
    if (!apart(seen)) return fedsim.group([]);
    const bottom = TOP + fits() * ROW;
    return fedsim.group(seen.map((t) => ({ type: "line", shape: { x1: sx(t), x2: sx(t), y1: TOP, y2: bottom }, style: { stroke: ink("round"), lineWidth: 1, lineDash: [2, 2] } })));
  }
  // The amount of work over time, for the brush.
  const density = (() => {
    const count = 200, bins = new Array(count).fill(0);
    begin.forEach((from, index) => {
      for (const [a, b] of workOf(index, from, time.ended_s[index])) {
        const last = Math.min(count - 1, Math.floor((b / whole[1]) * count));
        for (let bin = Math.floor((a / whole[1]) * count); bin <= last; bin += 1) bins[bin] += 1;
      }
    });
    return bins.map((value, bin) => [((bin + 0.5) / count) * whole[1], value]);
  })();

  function option(total, height) {
    width = total;
    margins(total);
    fills = Object.fromEntries(present.map((name) => [name, fedsim.fillOf(name, fedsim.HATCHES[name], true)]));
    const shown = rows.map((_, place) => place).slice(top, top + fits());
    const lengths = shown.flatMap((place) => own[rows[place]].filter(inView).map((index) => (time.ended_s[index] - begin[index]) * scale())).sort((a, b) => a - b);
    detailed = (lengths[lengths.length >> 1] ?? 0) >= DETAIL;
    host.dataset.view = view.map((t) => Math.round(t)).join(" ");
    host.dataset.mode = detailed ? "phases" : "sums";
    const xa = fedsim.axis({ kind: "time", low: view[0], high: view[1], pixels: width - left - right, horizontal: true }).option;
    const ya = fedsim.axis({
      low: top, high: top + fits(), pixels: fits() * ROW, horizontal: false,
      marks: shown.map((place) => place + 0.5), label: (mark) => called(rows[Math.floor(mark)]),
    }).option;
    const soft = { borderColor: "transparent", fillerColor: ink("brush"), backgroundColor: "transparent", brushSelect: false, showDetail: false, emphasis: { handleStyle: { color: ink("accent") } } };
    return {
      grid: { left, right: right, top: TOP, height: fits() * ROW, containLabel: false },
      xAxis: { ...xa, min: whole[0], max: whole[1] },
      yAxis: [{ ...ya, min: 0, max: Math.max(rows.length, 1), inverse: true, splitLine: { show: false }, axisLabel: { ...ya.axisLabel, fontSize: 11 } }, { type: "value", show: false, gridIndex: 0 }],
      dataZoom: [
        { type: "inside", xAxisIndex: 0, startValue: view[0], endValue: view[1], filterMode: "none", zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false, minValueSpan: 1e-3 },
        {
          type: "slider", xAxisIndex: 0, startValue: view[0], endValue: view[1], filterMode: "none", bottom: 4, height: BRUSH - 8, left, right: right, minValueSpan: 1e-3, ...soft,
          dataBackground: { lineStyle: { color: ink("muted"), width: 1 }, areaStyle: { color: ink("muted"), opacity: 0.25 } },
          selectedDataBackground: { lineStyle: { color: ink("accent"), width: 1 }, areaStyle: { color: ink("accent"), opacity: 0.35 } },
          handleStyle: { color: ink("card"), borderColor: ink("accent") }, moveHandleSize: 0,
        },
        ...(rows.length > fits() ? [{ type: "slider", yAxisIndex: 0, orient: "vertical", startValue: top, endValue: top + fits(), filterMode: "none", zoomLock: true, right: 6, width: 12, top: TOP, height: fits() * ROW, ...soft, handleSize: 0, moveHandleSize: 0, backgroundColor: ink("grid"), fillerColor: ink("muted"), showDataShadow: false }] : []),
      ],
      series: [
        { type: "line", xAxisIndex: 0, yAxisIndex: 1, data: density, silent: true, symbol: "none", lineStyle: { opacity: 0 }, z: 0 },
        { type: "custom", silent: true, data: shown.map((place) => [0, place]), renderItem: ({ dataIndex }) => drawOnline(top + dataIndex), z: 1, clip: true },
        { type: "custom", silent: true, data: [[0, 0]], renderItem: drawRounds, z: 2, clip: true },
        { type: "custom", silent: true, data: shown.map((place) => [0, place]), renderItem: ({ dataIndex }) => drawRow(top + dataIndex), z: 3, clip: true },
      ],
      graphic: [...(width > fedsim.WIDE ? [words("client", 2, TOP + fits() * ROW + 8)] : []), words("simulated time", width - right - fedsim.textWidth("simulated time"), height - BRUSH - 13)],
    };
  }
  const label = `${fedsim.titleOf(host)}. Left and right arrows move, plus and minus zoom, up and down select a client, Enter steps through its dispatches, Space plays the run, P pins the client.`;
  let chart = null;
  function redraw() {
    host.style.height = `${Math.max(fits(), 1) * ROW + TOP + BOTTOM}px`;
    if (chart) chart.redraw();
    else {
      chart = fedsim.mount(host, label, option, "canvas");
      chart.instance?.on("datazoom", follow);
      chart.cursor = fedsim.add(host, "div", { class: "cursor", hidden: "" });
      chart.state = { drawn: { along: { name: "simulated time" } }, set zoom(range) { view = range ? [Math.max(range[0], 0), Math.min(range[1], whole[1])] : [...whole]; } };
      chart.follow = (when) => {
        chart.cursor.hidden = when === null || when < view[0] || when > view[1];
        Object.assign(chart.cursor.style, { left: `${sx(when)}px`, top: `${TOP}px`, height: `${fits() * ROW}px` });
      };
    }
    key();
  }
  /* The charts along the same axis, which share the cursor and the zoom. */
  const beside = () => [...fedsim.charts.values()].filter((other) => other !== chart && other.state?.drawn?.along?.name === "simulated time");
  function redrawAll() {
    redraw();
    beside().forEach((other) => { other.state.zoom = [...view]; other.redraw(); });
  }
  /* ECharts has moved a brush: the axes, the rows and the kind of drawing follow. */
  let pending = 0;
  function follow() {
    const zooms = chart.instance.getOption().dataZoom;
    // Either brush may have moved; both get the new range.
    view = [zooms[0].startValue, zooms[0].endValue];
    if (zooms[2]) top = Math.max(0, Math.min(rows.length - fits(), Math.round(zooms[2].startValue)));
    cancelAnimationFrame(pending);
    pending = requestAnimationFrame(redrawAll);
  }

  // -- moving and reading -----------------------------------------------------------------------------------------------------
  function look(from, length) {
    const span = Math.min(Math.max(length, 1e-3), whole[1]);
    const start = Math.min(Math.max(from, 0), whole[1] - span);
    view = [start, start + span];
    redrawAll();
  }
  const pan = (share) => look(view[0] + (view[1] - view[0]) * share, view[1] - view[0]);
  const zoomOut = () => look(view[0] - (view[1] - view[0]) / 2, (view[1] - view[0]) * 2);
  /* Zooms in on the selected dispatch, or on the one nearest to the middle; never on empty time. */
  function closer() {
    const middle = (view[0] + view[1]) / 2, center = (index) => (begin[index] + end[index]) / 2;
    const all = rows.slice(top, top + fits()).flatMap((client) => own[client]);
    if (!all.length) return;
    const to = selected ?? all.reduce((best, index) => (Math.abs(center(index) - middle) < Math.abs(center(best) - middle) ? index : best));
    const length = (view[1] - view[0]) / 2;
    look(center(to) - length / 2, length);
  }
  const ACTIONS = { in: closer, out: zoomOut, earlier: () => pan(-0.5), later: () => pan(0.5), whole: () => look(0, Infinity) };
  for (const button of document.querySelectorAll("[data-view]")) button.addEventListener("click", () => ACTIONS[button.dataset.view]());
  const HINT = "Drag to move, Ctrl and the wheel to zoom, or use the brush; point to a dispatch to see its details.";
  function say(text, aloud) {
    readout.textContent = text || HINT;
    if (aloud) fedsim.live.textContent = text;
  }
  function client(number) {
    return `${full(number)}${kinds ? ` (${kinds[number]})` : ""}: ${show("count", people.updates[number])} updates, ${show("count", people.lost[number])} dispatches lost, ${show("count", people.late[number])} of them late`;
  }
  function describe(index, aloud) {
    const t = (key) => time[key][index];
    const text = [`${full(figure.order[index])}, dispatch ${id[index]}, from version ${version[index]}, at ${show("time", t("dispatched_s"))}`];
    for (const [name, from, to] of PHASES) {
      if (t(from) !== null) text.push(`${name} ${show("time", seconds(workOf(index, t(from), t(to) ?? t("ended_s"))))}${t(to) === null ? ", not finished" : ""}`);
    }
    if (paused[index].length) text.push(`paused ${show("time", seconds(paused[index]))}`);
    if (t("waited_s") !== null) text.push(`waiting ${show("time", t("waited_s") - t("arrived_s"))}`);
    if (powered(figure.order[index])) text.push(`charge ${show("share", before[index])} to ${show("share", after[index])}`);
    text.push(`${steps[index]} steps, ${outcome[index]}`);
    say(text.join(" · "), aloud);
  }
  function bring(place) {
    row = Math.max(0, Math.min(rows.length - 1, place));
    if (row < top || row >= top + fits()) top = Math.max(0, Math.min(rows.length - fits(), row - (fits() >> 1)));
  }
  function select(index) {
    selected = index;
    const length = view[1] - view[0];
    if (begin[index] < view[0] || end[index] > view[1]) look(begin[index] - length * 0.2, length); else redraw();
    describe(index, true);
  }
  /* The dispatch under the pointer. */
  function at(event) {
    const area = host.getBoundingClientRect(), place = top + Math.floor((event.clientY - area.top - TOP) / ROW);
    if (place >= top + fits() || rows[place] === undefined) return [];
    const when = view[0] + (event.clientX - area.left - left) / scale(), slack = 4 / scale();
    return [rows[place], own[rows[place]].find((index) => begin[index] - slack <= when && when <= end[index] + slack)];
  }
  host.addEventListener("pointermove", (event) => {
    if (player.playing) return;
    const [number, index] = at(event), when = view[0] + (event.clientX - host.getBoundingClientRect().left - left) / scale();
    beside().forEach((other) => other.follow(when));
    if (number === undefined) say(""); else if (index === undefined) say(client(number)); else describe(index, false);
  });
  host.addEventListener("click", (event) => { const [client] = at(event); if (player.playing && client !== undefined) player.pin(client); });
  host.addEventListener("pointerleave", () => { say(""); beside().forEach((other) => other.follow(null)); });
  host.addEventListener("dblclick", (event) => {
    const index = at(event)[1];
    if (index === undefined) return;
    const length = Math.max((end[index] - begin[index]) * 4, 1e-3);
    look(begin[index] - length * 0.375, length);
  });
  host.addEventListener("blur", () => { selected = null; say(""); redraw(); });
  host.addEventListener("keydown", (event) => {
    const move = (by_) => { bring(row + by_); selected = null; redraw(); say(client(rows[row]), true); };
    const keys = {
      ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), "+": closer, "=": closer, "-": zoomOut, 0: ACTIONS.whole,
      ArrowUp: () => move(-1), ArrowDown: () => move(1), PageUp: () => move(-fits()), PageDown: () => move(fits()),
      Escape: () => { player.stop(); selected = null; say(""); redraw(); },
      " ": player.toggle, p: () => player.pin(rows[row]),
      Enter: () => {
        const mine = own[rows[row]];
        if (!mine?.length) return;
        const place = mine.indexOf(selected), first = mine.findIndex((index) => end[index] >= view[0]);
        select(place < 0 ? mine[Math.max(first, 0)] : mine[(place + (event.shiftKey ? -1 : 1) + mine.length) % mine.length]);
      },
    };
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
  for (const choice of [sort, filter]) {
    choice.addEventListener("change", () => {
      arrange();
      redraw();
      say(`${show("count", rows.length)} clients, ${sort.value}`, true);
    });
  }
  search.addEventListener("input", () => {
    const wanted = search.value.trim().toLowerCase();
    if (wanted === "") { say(""); return; }
    const byName = () => (names ?? []).findIndex((name) => name.toLowerCase().includes(wanted));
    const number = clients.includes(Number(wanted)) ? clients.indexOf(Number(wanted)) : byName();
    if (number < 0) { say(`Client ${search.value} is not among the ${show("count", clients.length)} clients of this figure.`, true); return; }
    if (!rows.includes(number)) { filter.value = "all clients"; arrange(); }
    bring(rows.indexOf(number));
    if (own[number].length) select(own[number].find(inView) ?? own[number][0]);
    else { redraw(); say(client(number), true); }
  });

  /* What a client does at an instant. */
  function stateOf(client, when) {
    const index = own[client].find((each) => begin[each] <= when && when <= end[each]);
    if (index === undefined) {
      const here = online[client].some(([from, to]) => from <= when && when <= to);
      return here ? { color: "shade", words: "online" } : { color: "offline", words: presence ? "offline" : "not at work" };
    }
    if (paused[index].some(([from, to]) => from <= when && when < to)) return { color: "paused", words: "paused while offline" };
    const phase = PHASES.find(([, from, to]) => time[from][index] <= when && when < (time[to][index] ?? time.ended_s[index]));
    return phase ? { color: phase[0], words: `${phase[0]}, dispatch ${id[index]}` } : { color: "waiting", words: `waiting, dispatch ${id[index]}` };
  }
  const player = fedsim.play({
    host, beside, stateOf, name: full, say, view: () => view,
    place: (when) => ({ x: sx(when), right: width - right, top: TOP, height: fits() * ROW }),
    rows: () => rows.slice(top, top + fits()), row: (number) => TOP + (number + 0.5) * ROW,
    follow: (when) => chart.follow(when), key,
  });
  arrange();
  redraw();
  say("");
})();
