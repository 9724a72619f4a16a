/* The values of a search by each key, in a chart per key. */
(() => {
  const { data, column, curves, legend, finding } = fedsim;
  const host = document.getElementById("chart-slices"), value = column("history", "value"), others = column("history", "others");
  const points = (label, color, symbol, values) => ({ label, color, symbol, values, points: true, bare: true, shape: fedsim.markPath(symbol) });
  const all = [...value.values, ...others.values].filter((each) => each !== null), ylim = [0, 1.06 * Math.max(...all)];
  data.slices.keys.forEach((key, place) => {
    const series = [
      points(value.label, "g0", "circle", key.good), points(others.label, "idle", data.history.series[1].symbol, key.others),
      { ...points("the choice", "g1", "rect", key.good.map((each, row) => (row === key.chosen ? each : null))), large: true },
    ];
    if (!place) legend(host, series);
    const x = { kind: key.kind, label: key.label, values: key.x, zero: false, names: key.names.length ? key.names : null };
    const y = { kind: value.kind, label: value.label, zero: true }, scales = { x: key.log ? "log" : "linear" };
    curves(fedsim.cell(host, place, key.title), finding("slices"), { x, y, series, scales, ylim });
  });
})();
