/* The charts of a run's page. */
(() => {
  const { data, column, curves, finding } = fedsim;
  const host = (name) => document.getElementById(`chart-${name}`);
  const byId = (name) => document.getElementById(name);

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
        marks: stated ? [{ value: stated.target, at: reached < 0 ? null : against.values[reached], reach: true }] : [],
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

  if (data.partition) {
    fedsim.heat(host("partition"), finding("partition"), {
      columns: { label: "client", names: column("partition", "client_id").values },
      rows: { label: "label", names: data.partition.labels },
      values: data.partition.columns.slice(1).map((c) => c.values),
    });
  }
})();
