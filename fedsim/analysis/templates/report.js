"use strict";
/* The charts of a run's page. */
(() => {
  const { data, column, curves, columns, legend, finding, files } = fedsim;
  const host = (name) => document.getElementById(`chart-${name}`);
  const byId = (name) => document.getElementById(name);
  const lines = (name, x, y, series, scales) => {
    if (series.length > 1) legend(host(name), series.map((s) => ({ label: s.label, color: s.color, line: true, dash: s.dash, thin: s.plain })));
    curves(host(name), finding(name), { x, y, series, scales });
  };

  if (data.learning) {
    const choice = byId("metric");
    const draw = () => {
      const metric = column("learning", choice.value);
      const against = column("learning", document.querySelector("#progress input:checked").value);
      const stated = data.learning.targets[choice.value];
      const reached = stated && stated.time_s !== null ? column("learning", "time_s").values.indexOf(stated.time_s) : -1;
      const scales = { y: byId("scale").value }, marks = stated ? [stated.target] : [];
      const late = fedsim.lateRange({ x: against.values, lists: [metric.values], kind: metric.kind, higher: data.learning.higher[choice.value], scales, marks, reach: true });
      curves(host("learning"), finding("learning"), {
        x: against,
        y: { kind: metric.kind, label: metric.label },
        scales, ylim: fedsim.focus(late, metric.kind),
        smooth: Number(byId("smooth").value),
        series: [{ label: metric.label, color: "series", values: metric.values, points: true, symbol: "circle", step: true }],
        marks: stated ? [{ value: stated.target, label: `target ${fedsim.onAxis(metric.kind, stated.target)}`, at: reached < 0 ? null : against.values[reached], reach: true }] : [],
      });
    };
    for (const control of ["metric", "progress", "scale", "smooth", "focus"]) {
      byId(control).addEventListener(control === "smooth" ? "input" : "change", () => {
        // Each axis has a different range.
        if (control === "progress") fedsim.charts.get(host("learning")).state.zoom = null;
        draw();
      });
    }
    draw();
  }

  if (host("outcomes")) {
    const series = data.outcomes.columns.slice(2).map((c) => ({ label: c.label, color: c.key, values: c.values, hatch: fedsim.HATCHES[c.key] }));
    legend(host("outcomes"), series.map((s) => ({ label: `${s.label} ${fedsim.show("count", data.outcomes.totals[s.label])}`, color: s.color, hatch: s.hatch })));
    columns(host("outcomes"), finding("outcomes"), {
      x: { kind: "time", label: "simulated time", from: column("outcomes", "from_s").values, to: column("outcomes", "to_s").values },
      y: { label: "dispatches" },
      series,
    });
  }
  if (host("durations")) {
    const [x, ...every] = data.durations.columns;
    lines("durations", { ...x, label: "duration" }, { kind: "share", label: "share at most this long", zero: true }, every.map((c, place) => (
      { label: c.label, color: `g${place}`, dash: place ? [4, 2] : [], values: c.values, step: true })), { x: x.values[0] > 0 ? "log" : "linear" });
  }
  if (host("online")) {
    // A number that never changes is given in the sentence above.
    const recorded = column("online", "online"), present = recorded && new Set(recorded.values).size > 1 ? recorded : null;
    lines("online", column("online", "time_s"), { kind: "count", label: "clients", zero: true }, [
      ...(present ? [{ label: "online, on average", color: "online", kind: "mean", values: present.values, fill: true, plain: true, step: true }] : []),
      { label: "working, on average", color: "working", kind: "mean", values: column("online", "working").values, step: true },
    ]);
  }
  const histogram = (name, kind, label, key, unit, from = "from", to = "to", whole = true) => {
    if (!host(name)) return;
    columns(host(name), finding(name), {
      x: { kind, label, from: column(name, from).values, to: column(name, to).values, whole },
      y: { label: unit },
      series: [{ label: unit, color: "series", values: column(name, key).values }],
    });
  };
  histogram("participation", "count", "aggregated updates", "clients", "clients");
  histogram("staleness", "count", "staleness in versions", "updates", "updates");
  histogram("age", "time", "time since dispatch", "updates", "updates", "from_s", "to_s", false);
  histogram("client_accuracy", "share", "accuracy", "clients", "clients", "from", "to", false);
  histogram("client_mae", "number", "mean absolute error", "clients", "clients", "from", "to", false);
  if (host("delay")) {
    // While some client has never participated, the absence over all clients only counts the updates.
    const seen = column("delay", "tau_seen");
    lines("delay", column("delay", "version"), { kind: "count", label: "server updates", zero: true }, [
      { label: seen ? "clients that participated" : "all clients", color: "series", values: (seen || column("delay", "tau")).values },
    ]);
  }
  if (host("by_class")) {
    lines("by_class", column("by_class", "time_s"), { kind: "share", label: "accuracy" }, data.by_class.columns.slice(1, 1 + data.by_class.drawn).map((each, place) => (
      { label: each.label, color: `g${place}`, values: each.values, step: true })));
  }
  if (data.partition) {
    fedsim.heat(host("partition"), finding("partition"), {
      columns: { label: "client", names: column("partition", "client_id").values },
      rows: { label: "label", names: data.partition.labels },
      values: data.partition.columns.slice(1).map((c) => c.values),
    });
  }
  for (const name of Object.keys(data)) files(name);

  const find = byId("find"), found = byId("found");
  const text = document.querySelector("#scenario-text pre");
  find.addEventListener("input", () => {
    const query = find.value.trim().toLowerCase();
    let hits = 0, first = null;
    for (const line of text.children) {
      const hit = query !== "" && line.textContent.toLowerCase().includes(query);
      line.classList.toggle("hit", hit);
      hits += hit;
      first = first || (hit ? line : null);
    }
    text.classList.toggle("filtered", query !== "");
    found.textContent = query ? `${hits} ${hits === 1 ? "line" : "lines"}` : "";
    if (first) text.scrollTop = first.offsetTop - text.offsetTop - 40;
  });
})();
