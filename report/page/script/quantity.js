// Numbers as people read them.

const GROUPED = new Intl.NumberFormat("en-US");

function count(number) {
  return GROUPED.format(number);
}

/** `1 call`, `2,000 calls`. */
function counted(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

const BYTE_UNITS = ["bytes", "KiB", "MiB", "GiB", "TiB"];

function bytes(number) {
  let unit = 0;
  let value = number;
  while (Math.abs(value) >= 1024 && unit < BYTE_UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  if (unit === 0) {
    return number === 1 ? "1 byte" : `${number} bytes`;
  }
  return `${value.toFixed(1)} ${BYTE_UNITS[unit]}`;
}

const TIME_UNITS = [
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "µs"],
  [1, "ns"],
];

/** A duration, or a number of clock steps where the recorder's clock only counts. */
function duration(nanoseconds, clock = "ns") {
  if (nanoseconds === null || nanoseconds === undefined) {
    return "–";
  }
  if (clock !== "ns") {
    return counted(nanoseconds, "step");
  }
  const [scale, unit] = TIME_UNITS.find(([scale]) => nanoseconds >= scale) ?? [1, "ns"];
  const digits = scale === 1 ? 0 : nanoseconds / scale >= 100 ? 1 : 2;
  return `${(nanoseconds / scale).toFixed(digits)} ${unit}`;
}

/** A moment, exact enough to tell moments `step` apart. */
function moment(nanoseconds, step, clock = "ns") {
  if (clock !== "ns") {
    return count(Math.round(nanoseconds));
  }
  const [scale, unit] =
    TIME_UNITS.find(([scale]) => Math.max(Math.abs(nanoseconds), step) >= scale) ?? TIME_UNITS[3];
  const digits = Math.min(9, Math.max(0, Math.ceil(-Math.log10(step / scale) - 1e-9)));
  return `${(nanoseconds / scale).toFixed(digits)} ${unit}`;
}

function share(part, whole) {
  return whole > 0 ? `${((100 * part) / whole).toFixed(1)} %` : "–";
}

/** Steps of an axis: 1, 2 or 5 times a power of ten, at least `least`. */
function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= least * (1 - 1e-9));
}

function dimensions(three) {
  return three ? three.join("×") : "?";
}
