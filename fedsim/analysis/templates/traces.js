"use strict";
/* The charts of a page of trace bundles. */
(() => {
  const { data, legend, curves, finding, files } = fedsim;
  for (const [name, figure] of Object.entries(data)) {
    files(name);
    const host = document.getElementById(`chart-${name}`);
    if (!host) continue;
    const [x, ...columns] = figure.columns;
    const hidden = new Set();
    const draw = () => {
      const series = columns.map((each, place) => ({ ...figure.series[place], place, values: each.values, line: true, thin: figure.series[place].plain, hidden: hidden.has(each.label) }));
      legend(host, series, (label) => {
        if (!hidden.delete(label)) hidden.add(label);
        draw();
      });
      curves(host, finding(name), {
        x: { ...x, names: figure.names.length ? figure.names : null, zero: !figure.log }, y: { kind: "share", label: figure.unit, zero: true },
        scales: { x: figure.log ? "log" : "linear" }, series: series.filter((s) => !s.hidden),
      });
    };
    draw();
  }
})();
