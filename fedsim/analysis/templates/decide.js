"use strict";
/* The charts of a decision's page. */
(() => {
  const { data, column, curves, legend, finding, files, cell } = fedsim;
  const host = (name) => document.getElementById(`chart-${name}`);
  const points = (label, color, symbol, values) => ({ label, color, symbol, values, points: true, bare: true });
  const drawn = (at, name, x, y, series, scales) => curves(at, finding(name), { x, y, series, scales });
  const shown = (name, series) => legend(host(name), series.map(({ label, color, bare, symbol }) => ({ label, color, line: !bare, shape: bare && fedsim.markPath(symbol) })));

  const value = column("history", "value"), others = column("history", "others"), best = column("history", "best");
  const y = { kind: value.kind, label: value.label, zero: true };
  const history = [
    points(value.label, "g0", "circle", value.values), points(others.label, "idle", "diamond", others.values),
    { label: best.label, color: "g0", values: best.values, step: true, plain: true },
  ];
  shown("history", history);
  drawn(host("history"), "history", { ...column("history", "number") }, y, history);

  for (const name of Object.keys(data).filter((each) => each.startsWith("front"))) {
    const [x, searched, front] = data[name].columns;
    const series = [points(searched.label, "g1", "circle", searched.values), points(front.label, "g0", "rect", front.values)];
    shown(name, series);
    drawn(host(name), name, { ...x, zero: false }, { kind: front.kind, label: data[name].label }, series);
  }

  const all = [...value.values, ...others.values].filter((each) => each !== null), ylim = [0, 1.06 * Math.max(...all)];
  data.slices.keys.forEach((key, place) => {
    const series = [
      points(value.label, "g0", "circle", key.good), points(others.label, "idle", "diamond", key.others),
      { ...points("the choice", "g1", "rect", key.good.map((each, row) => (row === key.chosen ? each : null))), large: true },
    ];
    if (!place) shown("slices", series);
    const x = { kind: key.kind, label: key.label, values: key.x, zero: false, names: key.names.length ? key.names : null };
    curves(cell(host("slices"), place, key.title), finding("slices"), { x, y, series, scales: { x: key.log ? "log" : "linear" }, ylim });
  });
  Object.keys(data).forEach((name) => files(name));
})();
