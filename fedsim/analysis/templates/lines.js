"use strict";
/* The charts of figures of lines. */
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
        x: { ...x, names: figure.names.length ? figure.names : null, ticks: figure.ticks.length ? figure.ticks : null, zero: !figure.log }, y: { kind: columns[0].kind, label: figure.unit, zero: columns[0].kind === "share" },
        scales: { x: figure.log ? "log" : "linear" }, series: series.filter((s) => !s.hidden),
      });
    };
    draw();
  }
})();
