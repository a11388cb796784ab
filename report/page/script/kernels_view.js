// Launches by kernel, with their shapes and times, and how often launched graphs run them. Counts
// the calls that match the filter.

class KernelsView {
  constructor(app) {
    this.app = app;
    const hasGraphs = app.trace.graphLaunches.length > 0;
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
        ...(hasGraphs ? [IN_GRAPHS] : []),
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
          value: mean,
          cell: (row) => duration(mean(row), app.trace.clock),
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
        hasGraphs ? "A kernel in a graph has no host time of its own. " : "",
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
    const hasGraphs = this.app.trace.graphLaunches.length > 0;
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
        ...(hasGraphs ? [IN_GRAPHS] : []),
        {
          title: "Host time",
          right: true,
          value: (row) => row.total,
          cell: (row) => duration(row.total, clock),
        },
        {
          title: "Mean",
          right: true,
          value: mean,
          cell: (row) => duration(mean(row), clock),
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

const IN_GRAPHS = {
  title: "In graphs",
  right: true,
  hint: "How often launched graphs run it",
  value: (row) => row.inGraphs,
  cell: (row) => count(row.inGraphs),
};

function mean(row) {
  return row.launches === 0 ? null : row.total / row.launches;
}

function kernelRows({ trace, filter, facts: { kernels, graph_kernels, bench } }) {
  const rows = kernels.map(({ name, shown }) => ({
    name,
    shown,
    launches: 0,
    inGraphs: 0,
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
    const entry = shapeRow(row, trace.launchShape[at], call);
    entry.launches += 1;
    entry.total += time;
  }
  addGraphs(rows, trace, filter, graph_kernels);
  for (const benchmark of bench?.benchmarks ?? []) {
    const kernel = benchmark.clock === "gpu" ? trace.kernel[benchmark.call] : undefined;
    if (kernel !== undefined && kernel !== NONE) {
      rows[kernel].gpu ??= benchmark.time.point;
    }
  }
  return rows.filter((row) => row.launches + row.inGraphs > 0);
}

/** Many launches run the same kernels: each list is added once, with the number of launches. */
function addGraphs(rows, trace, filter, lists) {
  const runs = lists.map(() => ({ launches: 0, first: null }));
  for (let at = 0; at < trace.graphLaunches.length; at++) {
    const call = trace.graphLaunches[at];
    if (filter.has(call)) {
      const run = runs[trace.graphKernels[at]];
      run.launches += 1;
      run.first ??= call;
    }
  }
  for (const [number, { launches, first }] of runs.entries()) {
    if (launches === 0) {
      continue;
    }
    for (const [kernel, shape, times] of lists[number]) {
      const row = rows[kernel];
      const entry = shapeRow(row, shape, first);
      for (const counts of [row, entry]) {
        counts.inGraphs += launches * times;
        counts.first = Math.min(counts.first ?? first, first);
      }
    }
  }
}

/** The counts of a kernel's launches with that shape. */
function shapeRow(row, shape, call) {
  let entry = row.shapes.get(shape);
  if (!entry) {
    entry = { shape, launches: 0, inGraphs: 0, total: 0, first: call };
    row.shapes.set(shape, entry);
  }
  return entry;
}
