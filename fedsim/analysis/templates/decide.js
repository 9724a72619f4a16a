"use strict";
/* The charts of a decision's page. */
(() => {
  const { data, column, curves, legend, finding, files, mount, ink, short, titleOf } = fedsim;
  const host = (name) => document.getElementById(`chart-${name}`);
  const drawn = (name, x, y, series) => {
    legend(host(name), series.map(({ label, color, bare }) => ({ label, color, line: !bare })));
    curves(host(name), finding(name), { x, y, series });
  };
  const points = (each, color, symbol) => ({ label: each.label, color, symbol, values: each.values, points: true, bare: true });

  const value = column("history", "value"), best = column("history", "best");
  drawn("history", { ...column("history", "number") }, { kind: value.kind, label: value.label, zero: true }, [
    points(value, "g1", "circle"),
    { label: best.label, color: "g0", values: best.values, step: true, plain: true },
  ]);

  for (const name of Object.keys(data).filter((each) => each.startsWith("front"))) {
    const [x, searched, front] = data[name].columns;
    drawn(name, { ...x, zero: false }, { kind: front.kind, label: data[name].label }, [points(searched, "g1", "circle"), points(front, "g0", "rect")]);
  }

  const { axes, chosen } = data.parallel;
  /* A numeric axis; settings without the key are at its lower end, below the first value. */
  const numeric = ({ kind, log, values, low, high, first }) => {
    const known = values.filter((each) => each !== null);
    const scale = fedsim.axis({ kind, scale: log ? "log" : "linear", low: first ?? low ?? Math.min(...known), high: high ?? Math.max(...known), pixels: 260 });
    const label = scale.option.axisLabel;
    if (first !== undefined) {
      scale.option.min = scale.to(low);
      scale.option.axisLabel = { ...label, customValues: [scale.to(low), ...scale.places], formatter: (each) => (each < scale.to(first) ? "none" : label.formatter(each)) };
    }
    return scale;
  };
  const scales = axes.map((each) => (each.names.length ? null : numeric(each))), rank = axes.at(-1).values, last = Math.max(1, rank.filter((each) => each !== null).length - 1);
  mount(host("parallel"), `${titleOf(host("parallel"))}. ${finding("parallel")}`, (width) => ({
    parallel: { left: 46, right: 96, top: 44, bottom: 20 },
    parallelAxis: axes.map((axis, dim) => ({
      dim, name: width < 600 && dim % 2 ? `\n${short(axis.label)}` : short(axis.label),
      nameGap: 14, nameTextStyle: { color: ink("text"), fontSize: 12 },
      ...(axis.names.length
        ? { type: "category", data: axis.names.map(short) }
        : scales[dim].option),
      axisLine: { lineStyle: { color: ink("muted") } }, axisTick: { show: false },
      ...(axis.names.length && { axisLabel: { color: ink("muted") } }),
    })),
    series: [{
      type: "parallel", silent: true, smooth: 0.15, emphasis: { disabled: true },
      // The best is drawn last.
      data: rank.map((_, row) => row).reverse().map((row) => ({
        value: axes.map((axis, dim) => (axis.values[row] === null ? "-" : scales[dim]?.to(axis.values[row]) ?? axis.values[row])),
        lineStyle: { color: ink(row === chosen ? "g1" : "g0"), width: row === chosen ? 4 : 1.25, opacity: row === chosen ? 1 : rank[row] === null ? 0.07 : 0.85 - 0.7 * (row / last) },
      })),
    }],
  }));
  Object.keys(data).forEach((name) => files(name));
})();
