/* The charts of a comparison page: curves with bands, in the colors, dashes and markers of the paper figure. */
(() => {
  const { data, curves, legend, finding, files } = fedsim;
  const { groups, settings, targets, looks, view, runs_up_to } = data.comparison;
  const byId = (name) => document.getElementById(name);
  const host = (name) => byId(`chart-${name}`);
  const chooser = byId("setting");
  const current = () => (chooser ? chooser.value : settings[0]);
  const labelled = (label) => (chooser ? `${label}, ${current()}` : label);
  const members = () => groups.map((group, index) => ({ ...group, index })).filter((group) => group.setting === current());
  const hidden = new Set();
  const drawings = [];
  const redraw = () => drawings.forEach((draw) => draw());
  const toggle = (label) => { if (!hidden.delete(label)) hidden.add(label); redraw(); };
  const look = ({ label, place }) => ({ label, place, ...looks[place], line: true, hidden: hidden.has(label) });
  const named = (name) => legend(host(name), members().map(look), toggle);

  if (data.charts.metrics.length) {
    const { metrics, against, series: values } = data.charts;
    for (const metric of metrics) byId("metric").add(new Option(metric.label, metric.key));
    if (view.metric) byId("metric").value = view.metric;
    against.forEach((each) => {
      const label = fedsim.add(byId("progress"), "label");
      const input = fedsim.add(label, "input", { type: "radio", name: "progress", value: each.key });
      input.checked = each.key === view.against;
      label.append(` ${each.label}`);
    });
    byId("bands").checked = Boolean(view.bands);
    if (view.scale) byId("scale").value = view.scale;
    byId("logx").checked = view.xscale === "log";
    const multiples = byId("multiples");
    const chosen = () => {
      const metric = metrics.find((each) => each.key === byId("metric").value);
      const axis = against.find((each) => each.key === byId("progress").querySelector("input:checked").value);
      const { x, groups: own } = values[metric.key][axis.key][current()];
      const series = members().map((group, number) => ({ ...look(group), values: own[number].median, low: own[number].low, high: own[number].high, runs: own[number].runs ?? [], step: true }));
      return { metric, axis, x, series, requested: metric.key === view.metric && axis.key === view.against };
    };
    const draw = () => {
      named("curves");
      const { metric, axis, x, series, requested } = chosen();
      const shown = series.filter((s) => !s.hidden);
      const goals = targets.filter((goal) => goal.metric === metric.key);
      const scales = { y: byId("scale").value, x: byId("logx").checked ? "log" : undefined }, xlim = requested ? view.xlim : null;
      const lists = shown.flatMap((s) => [s.values, ...(byId("bands").checked && s.low ? [s.low, s.high] : [])]);
      const late = xlim ? null : fedsim.lateRange({ x, lists, kind: metric.kind, higher: metric.higher, scales, marks: goals.map((goal) => goal.value) });
      const ylim = requested && view.ylim ? fedsim.focus(view.ylim) : fedsim.focus(late, metric.kind);
      const plain = (s) => s.runs.map((run) => ({ ...s, symbol: null, values: run, plain: true, thin: true, silent: true, dash: [] }));
      const drawn = (target, own, faint, range) => curves(target, finding("curves"), {
        x: { ...axis, values: x }, y: { ...metric, label: labelled(metric.label) }, bands: byId("bands").checked, smooth: Number(byId("smooth").value), scales, xlim, ylim: range,
        series: [...faint, ...(byId("bands").checked ? [] : own.flatMap(plain)), ...own],
        marks: goals, ends: true,
      });
      // The lines of many variants hide each other: they have one plot each.
      const many = series.length > runs_up_to;
      host("curves").hidden = many;
      multiples.hidden = !many;
      if (!many) { drawn(host("curves"), shown, [], ylim); return; }
      const all = fedsim.extent(shown.flatMap((s) => [s.values, ...s.runs].flat())).map((end) => (Number.isFinite(end) ? end : null));
      series.forEach((s, place) => {
        const cell = fedsim.cell(multiples, place, s.label);
        cell.parentElement.hidden = s.hidden;
        const others = shown.filter((other) => other !== s).map((other) => ({ ...other, color: "idle", symbol: null, dash: [], plain: true, thin: true, silent: true, runs: [] }));
        if (!s.hidden) drawn(cell, [s], others, ylim ?? all);
      });
    };
    for (const name of ["metric", "progress", "bands", "scale", "focus", "logx"]) {
      byId(name).addEventListener("change", () => {
        if (name === "progress") fedsim.charts.get(host("curves")).state.zoom = null;
        draw();
        // The numbers of the figure follow the choice.
        files("curves", numbers);
      });
    }
    byId("smooth").addEventListener("input", draw);
    const numbers = () => {
      const { metric, axis, x, series } = chosen();
      return { columns: [
        { key: axis.key, label: axis.label, kind: axis.kind, values: x },
        ...series.flatMap((s) => [["values", "median", ""], ["low", "low", ", lowest"], ["high", "high", ", highest"]].map(([field, key, suffix]) => ({ key: `${s.label} ${key}`, label: s.label + suffix, kind: metric.kind, values: s[field] ?? [] }))),
      ] };
    };
    drawings.push(draw, () => files("curves", numbers));
  }

  function distribution(name, y, diagonal) {
    if (!data[name]) return;
    const x = data[name].columns[0];
    const series = () => members().map((group) => ({ ...look(group), symbol: null, values: data[name].columns[1 + group.index].values }));
    drawings.push(() => {
      named(name);
      const shown = series().filter((s) => !s.hidden);
      if (diagonal) shown.push({ label: "if all contributed equally", plain: true, color: "muted", dash: [1, 2], values: x.values });
      curves(host(name), finding(name), { x, y: { kind: "share", label: labelled(y), zero: true }, series: shown, ylim: [0, 1] });
      files(name, () => ({ columns: [x, ...series().map((s) => ({ key: s.label, label: s.label, kind: "share", values: s.values }))] }));
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
