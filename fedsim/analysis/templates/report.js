"use strict";
/* The charts of a run's page. */
(() => {
  const { data, column, lines, columns, legend } = fedsim;
  const host = (name) => document.getElementById(`chart-${name}`);
  const finding = (name) => document.querySelector(`#figure-${name} .finding`).textContent;
  const legendBefore = (element, items) => {
    const row = document.createElement("ul");
    row.className = "legend";
    element.before(row);
    legend(row, items);
  };

  if (data.learning) {
    const choice = document.getElementById("metric");
    for (const name of data.learning.metrics) choice.add(new Option(column("learning", name).label, name));
    const draw = () => {
      const metric = column("learning", choice.value);
      const against = column("learning", document.querySelector("#progress input:checked").value);
      const stated = data.learning.targets[choice.value];
      const reached = stated && stated.time_s !== null ? column("learning", "time_s").values.indexOf(stated.time_s) : -1;
      lines(host("learning"), finding("learning"), {
        x: against,
        y: { kind: metric.kind, label: metric.label },
        series: [{ label: metric.label, color: "series", values: metric.values, points: true }],
        target: stated && {
          value: stated.target,
          label: `target ${fedsim.onAxis(metric.kind, stated.target)}`,
          at: reached < 0 ? null : against.values[reached],
        },
      });
    };
    choice.addEventListener("change", draw);
    document.getElementById("progress").addEventListener("change", draw);
    draw();
  }

  const outcomeSeries = data.outcomes.columns.slice(2).map((c) => ({ label: c.label, color: c.key, values: c.values }));
  const most = Object.entries(data.outcomes.totals);
  legendBefore(host("outcomes"), outcomeSeries.map((s) => ({ label: `${s.label} ${fedsim.show("count", most.find(([name]) => name === s.label)[1])}`, color: s.color })));
  columns(host("outcomes"), finding("outcomes"), {
    x: { kind: "time", label: "simulated time", from: column("outcomes", "from_s").values, to: column("outcomes", "to_s").values },
    y: { label: "dispatches" },
    series: outcomeSeries,
  });

  const present = column("online", "online");
  const people = [
    ...(present ? [{ label: "online", color: "online", values: present.values, fill: true }] : []),
    { label: "working, on average", color: "compute", kind: "number", values: column("online", "working").values },
  ];
  legendBefore(host("online"), people.map((s) => ({ label: s.label, color: s.color, line: true })));
  lines(host("online"), finding("online"), { x: column("online", "time_s"), y: { kind: "count", label: "clients", zero: true }, series: people });

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

  const even = [
    { label: "this run", color: "series", values: column("inequality", "updates").values, fill: true },
    { label: "if all were equal", color: "muted", values: column("inequality", "equal").values, dash: "5 4", silent: true },
  ];
  legendBefore(host("inequality"), even.map((s) => ({ label: s.label, color: s.color, line: true, dash: s.dash })));
  lines(host("inequality"), finding("inequality"), {
    x: { ...column("inequality", "clients"), label: "share of clients" },
    y: { kind: "share", label: "share of updates", zero: true },
    series: even,
  });

  const seen = column("delay", "tau_seen");
  const absence = [
    { label: "all clients", color: "series", values: column("delay", "tau").values },
    // Dashed, because it often coincides with the other.
    ...(seen ? [{ label: "clients that participated", color: "waiting", values: seen.values, dash: "7 5" }] : []),
  ];
  if (seen) legendBefore(host("delay"), absence.map((s) => ({ label: s.label, color: s.color, line: true })));
  lines(host("delay"), finding("delay"), {
    x: column("delay", "version"),
    y: { kind: "count", label: "server updates", zero: true },
    series: absence,
  });

  if (data.partition) {
    const labels = data.partition.columns.slice(1);
    fedsim.heat(host("partition"), finding("partition"), {
      columns: { label: "client", names: column("partition", "client_id").values },
      rows: { label: "label", names: data.partition.labels },
      values: labels.map((c) => c.values),
    });
  }

  for (const details of document.querySelectorAll("[data-table]")) fedsim.table(details, data[details.dataset.table]);

  const find = document.getElementById("find"), found = document.getElementById("found");
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
