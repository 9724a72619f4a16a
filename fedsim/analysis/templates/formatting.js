"use strict";
/* How fedsim writes numbers: the rules of fedsim/vocabulary/formatting.py, for charts. A test compares both. */
const format = (() => {
  const ABSENT = "–";
  const SMALL_UNITS = [["s", 1, 0.1], ["ms", 1e3, 1e-4], ["µs", 1e6, 1e-7], ["ns", 1e9, 0]];
  const LARGE_UNITS = [["min", 60, 60, "s", 1], ["h", 3600, 24, "min", 60], ["d", 86400, 1000, "h", 3600]];
  const PREFIXES = ["", "k", "M", "G", "T", "P"];

  const separated = (digits) => digits.replace(/\B(?=(\d{3})+(\.|$))/g, ",");
  const whole = (value) => separated(Math.round(value).toFixed(0));
  function significant(value, digits) {
    const [mantissa, exponent] = value.toExponential(digits - 1).split("e");
    const power = Number(exponent);
    return power >= -4 && power < 15 ? String(Number(value.toPrecision(digits))) : `${Number(mantissa)}e${exponent}`;
  }
  function signed(value, written) {
    if (value === null || value === undefined || !Number.isFinite(value)) return ABSENT;
    return value < 0 ? `−${written(-value)}` : written(Math.abs(value));
  }
  const prefixed = (value, unit) => signed(value, (size) => {
    let step = 0;
    while (size >= 999.5 && step < PREFIXES.length - 1) { size /= 1000; step += 1; }
    return `${significant(size, 3)} ${PREFIXES[step]}${unit}`;
  });
  const smallUnit = (value) => SMALL_UNITS.find(([, , least]) => value >= least || !value);
  const duration = (seconds) => signed(seconds, (value) => {
    if (value < 59.95) {
      const [unit, perSecond] = smallUnit(value);
      return `${significant(value * perSecond, 3)} ${unit}`;
    }
    for (const [unit, length, most, smaller, smallerLength] of LARGE_UNITS) {
      const parts = Math.round(value / smallerLength), size = length / smallerLength;
      const count = Math.floor(parts / size), rest = parts % size;
      if (count < most) return rest ? `${count} ${unit} ${rest} ${smaller}` : `${count} ${unit}`;
    }
    return `${whole(value / 86400)} d`;
  });
  /* A duration in all its units, exact enough that neighboring ticks of an axis never have the same label; below a second
     in the unit of the axis' last value. */
  const exactDuration = (seconds, last = seconds) => signed(seconds, (value) => {
    const decimals = Math.max(0, Math.min(9, 14 - Math.floor(Math.log10(Math.max(value, 1)))));
    let rest = Number(value.toFixed(decimals));
    const parts = [];
    for (const [unit, length] of [...LARGE_UNITS].reverse()) {
      const count = Math.floor(rest / length);
      rest -= count * length;
      if (count) parts.push(`${whole(count)} ${unit}`);
    }
    rest = Number(rest.toFixed(decimals));
    const [unit, perSecond] = parts.length || last >= 1 ? ["s", 1] : smallUnit(last / 10);
    if (rest || !parts.length) parts.push(`${Number((rest * perSecond).toPrecision(12))} ${unit}`);
    return parts.join(" ");
  });
  const write = {
    time: duration,
    count: (value) => signed(value, whole),
    mean: (value) => signed(value, (size) => (Math.abs(size - Math.round(size)) < 1e-9 ? whole(size) : separated(size.toFixed(1)))),
    share: (value) => signed(value, (share) => {
      const percent = 100 * share;
      return `${percent && percent < 0.095 ? significant(percent, 1) : percent.toFixed(1)}%`;
    }),
    bytes: (value) => prefixed(value, "B"),
    energy: (value) => prefixed(value, "J"),
    number: (value) => signed(value, (size) => (size >= 999.95 && size < 1e15 ? whole(size) : significant(size, 4))),
    text: String,
  };
  const value = (kind, item) => (item === null || item === undefined ? ABSENT : write[kind](item));
  const level = (kind, item) => (kind === "share" ? signed(item, (share) => `${significant(100 * share, 4)}%`) : value(kind, item));
  const tick = (kind, item, last) => (item === 0 ? "0" : kind === "time" ? exactDuration(item, last) : level(kind, item));
  return { value, level, tick };
})();
