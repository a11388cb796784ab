// Measurements, as `cutape bench --report` writes them.

function benchView({ facts: { bench } }) {
  const isCompared = bench.benchmarks.some(({ change }) => change);
  const percent = (value) => `${value > 0 ? "+" : ""}${(100 * value).toFixed(1)} %`;
  const drivers = new Set(bench.benchmarks.map(({ driver }) => driver));
  const tones = { regression: "error", improvement: "good" };
  const longest = Math.max(1, ...bench.benchmarks.map(({ time }) => time.point));
  const table = new SortedTable({
    caption: "Measurements",
    rows: bench.benchmarks,
    none: "Nothing was measured.",
    columns: [
      { title: "Clock", value: (row) => row.clock, cell: (row) => row.clock },
      {
        title: "Measured",
        class: "name",
        value: (row) => row.name,
        cell: (row) => row.name + (row.is_replaced ? " (replaced)" : ""),
      },
      { title: "Call", right: true, value: (row) => row.call, cell: (row) => callLink(row.call) },
      {
        title: "Time",
        right: true,
        value: (row) => row.time.point,
        bar: (row) => row.time.point / longest,
        cell: (row) => duration(row.time.point),
      },
      {
        title: "95 % interval",
        right: true,
        cell: (row) => `${duration(row.time.lower)} to ${duration(row.time.upper)}`,
      },
      ...(isCompared
        ? [
            {
              title: "Change",
              right: true,
              value: (row) => row.change?.mean.point,
              cell: (row) => (row.change ? percent(row.change.mean.point) : "–"),
            },
            {
              title: "Verdict",
              value: (row) => row.verdict,
              cell: (row) =>
                tones[row.verdict] ? badge(tones[row.verdict], row.verdict) : row.verdict,
            },
          ]
        : []),
      ...(drivers.size > 1
        ? [
            {
              title: "Driver",
              class: "text",
              value: (row) => row.driver,
              cell: (row) => row.driver,
            },
          ]
        : []),
    ],
  });
  return element(
    "div",
    { class: "view" },
    element("h1", {}, "Benchmarks"),
    element(
      "p",
      { class: "about" },
      "What cutape bench measured: a launch or a group of calls, repeated, on the clock of the " +
        "device (gpu) or of the host.",
    ),
    table.node,
    bench.mismatches.length > 0
      ? element(
          "p",
          {},
          badge("error", "results differ"),
          ` Replaced kernels wrote other results in ${count(bench.mismatches.length)} places.`,
        )
      : null,
    skippedTable("Issued once, not repeated", bench.not_repeated),
    skippedTable("Not re-issued", bench.not_reissued),
    notesTable(bench.notes),
  );
}
