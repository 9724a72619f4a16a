/* The charts of the figures that say how their columns are drawn: as lines over the first column, or as counts in bins. */
(() => {
  const { data, column, legend, finding, files } = fedsim;
  function lines(host, name, figure) {
    const [x] = figure.columns, hidden = new Set();
    const every = figure.series.map((s, place) => {
      const { label, kind, values } = column(name, s.key);
      const [low, high] = (s.band ?? []).map((key) => column(name, key).values);
      return { color: `g${place}`, ...s, label, kind, values, low, high, place, line: !s.bare, thin: s.plain, shape: s.bare && fedsim.markPath(s.symbol) };
    });
    const kind = figure.kind ?? every[0].kind, shades = figure.shades ?? [];
    const toggle = (label) => {
      if (!hidden.delete(label)) hidden.add(label);
      draw();
    };
    const draw = () => {
      const series = every.map((s) => ({ ...s, hidden: hidden.has(s.label) }));
      const entries = [...series, ...shades.map(({ label }) => ({ label, color: "accent-soft" }))];
      if (entries.length > 1) legend(host, entries, series.length > 1 && toggle);
      fedsim.curves(host, finding(name), {
        x: { ...x, label: figure.label ?? x.label, names: figure.names, ticks: figure.ticks, zero: figure.from_zero ?? !figure.log },
        y: { kind, label: figure.unit, zero: figure.zero ?? kind === "share" },
        scales: { x: figure.log ? "log" : "linear" }, series: series.filter((s) => !s.hidden), ylim: figure.ylim, shades, bands: true,
      });
    };
    draw();
  }
  function bins(host, name, { columns: [from, to, ...counts], bins: label, counted, totals }) {
    const x = { kind: from.kind, label, from: from.values, to: to.values, whole: from.kind === "count" };
    const series = counts.map(({ key, label, values }) => ({ label, color: totals ? key : "series", values, hatch: fedsim.HATCHES[key] }));
    if (totals) legend(host, series.map((s) => ({ ...s, label: `${s.label} ${fedsim.show("count", totals[s.label])}` })));
    fedsim.columns(host, finding(name), { x, y: { label: counted ?? counts[0].label }, series });
  }
  for (const [name, figure] of Object.entries(data)) {
    const host = document.getElementById(`chart-${name}`);
    if (host && figure.series) lines(host, name, figure);
    if (host && figure.bins) bins(host, name, figure);
    files(name);
  }
})();
