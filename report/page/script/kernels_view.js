// Launches by kernel, with their shapes and times. Counts the launches that match the filter.

class KernelsView {
  constructor(app) {
    this.app = app;
    const longest = () => Math.max(1, ...this.table.rows.map((row) => row.total));
    this.table = new SortedTable({
      caption: "Launches by kernel",
      rows: [],
      sort: { column: 1, descending: true },
      none: "No launch matches.",
      detail: (row) => this.#shapes(row),
      columns: [
        {
          title: "Kernel",
          class: "name",
          value: (row) => row.shown,
          cell: (row) => element("span", { title: row.name }, row.shown),
        },
        {
          title: "Launches",
          right: true,
          value: (row) => row.launches,
          cell: (row) => count(row.launches),
        },
        {
          title: "Failed",
          right: true,
          value: (row) => row.failed,
          cell: (row) => failures(row.failed),
        },
        {
          title: "Shapes",
          right: true,
          value: (row) => row.shapes.size,
          cell: (row) => count(row.shapes.size),
        },
        {
          title: "Host time",
          right: true,
          hint: "Time in the calls that launch",
          value: (row) => row.total,
          bar: (row) => row.total / longest(),
          cell: (row) => duration(row.total, app.trace.clock),
        },
        {
          title: "Mean",
          right: true,
          value: (row) => row.total / row.launches,
          cell: (row) => duration(row.total / row.launches, app.trace.clock),
        },
        {
          title: "Longest",
          right: true,
          value: (row) => row.longest,
          cell: (row) => [duration(row.longest, app.trace.clock)],
        },
        ...(app.facts.bench
          ? [
              {
                title: "GPU time",
                right: true,
                hint: "Measured by cutape bench",
                value: (row) => row.gpu,
                cell: (row) => duration(row.gpu),
              },
            ]
          : []),
        {
          title: "First launch",
          right: true,
          value: (row) => row.first,
          cell: (row) => callLink(row.first),
        },
      ],
    });
    this.node = element(
      "div",
      { class: "view" },
      element("h1", {}, "Launches by kernel"),
      element(
        "p",
        { class: "about" },
        "Host time is the time in the launching calls; launches run later on the device. ",
        app.facts.bench
          ? "GPU time is what cutape bench measured for a launch of the kernel."
          : "cutape bench measures the time on the device; give its report with --bench.",
      ),
      this.table.node,
    );
  }

  show(node) {
    replaceContent(node, this.node);
    this.setFilter();
  }

  setFilter() {
    this.table.update(kernelRows(this.app));
  }

  #shapes(kernel) {
    const { clock } = this.app.trace;
    const { shapes } = this.app.facts;
    return new SortedTable({
      caption: `Shapes of ${kernel.shown}`,
      rows: [...kernel.shapes.values()],
      sort: { column: 3, descending: true },
      columns: [
        { title: "Grid", cell: (row) => dimensions(shapes[row.shape].grid) },
        { title: "Block", cell: (row) => dimensions(shapes[row.shape].block) },
        {
          title: "Shared memory",
          right: true,
          value: (row) => shapes[row.shape].shared,
          cell: (row) => bytes(shapes[row.shape].shared ?? 0),
        },
        {
          title: "Launches",
          right: true,
          value: (row) => row.launches,
          cell: (row) => count(row.launches),
        },
        {
          title: "Host time",
          right: true,
          value: (row) => row.total,
          cell: (row) => duration(row.total, clock),
        },
        {
          title: "Mean",
          right: true,
          value: (row) => row.total / row.launches,
          cell: (row) => duration(row.total / row.launches, clock),
        },
        {
          title: "First launch",
          right: true,
          value: (row) => row.first,
          cell: (row) => callLink(row.first),
        },
      ],
    }).node;
  }
}

function kernelRows({ trace, filter, facts: { kernels, bench } }) {
  const rows = kernels.map(({ name, shown }) => ({
    name,
    shown,
    launches: 0,
    failed: 0,
    total: 0,
    longest: 0,
    first: null,
    gpu: null,
    shapes: new Map(),
  }));
  for (let at = 0; at < trace.launches.length; at++) {
    const call = trace.launches[at];
    if (!filter.has(call)) {
      continue;
    }
    const row = rows[trace.launchKernel[at]];
    const time = trace.duration[call];
    row.launches += 1;
    row.failed += trace.isFailed(call) ? 1 : 0;
    row.total += time;
    row.longest = Math.max(row.longest, time);
    row.first ??= call;
    const shape = trace.launchShape[at];
    let entry = row.shapes.get(shape);
    if (!entry) {
      entry = { shape, launches: 0, total: 0, first: call };
      row.shapes.set(shape, entry);
    }
    entry.launches += 1;
    entry.total += time;
  }
  for (const benchmark of bench?.benchmarks ?? []) {
    const kernel = benchmark.clock === "gpu" ? trace.kernel[benchmark.call] : undefined;
    if (kernel !== undefined && kernel !== NONE) {
      rows[kernel].gpu ??= benchmark.time.point;
    }
  }
  return rows.filter((row) => row.launches > 0);
}
