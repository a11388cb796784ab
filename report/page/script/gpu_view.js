// What a replay measured on the GPU, as `cutape profile --format json` writes it.

class GpuView {
  constructor(app) {
    this.app = app;
    this.timeline = new GpuTimeline(app);
    // As high as its tracks, within limits.
    const tracks = this.timeline.tracks.reduce((sum, { height }) => sum + height, 0);
    const height = `${190 + Math.min(360, Math.max(60, tracks + 8))}px`;
    this.frame = element("div", { class: "gpu-timeline", style: { height } });
    this.node = gpuSections(app, this.frame);
  }

  show(frame) {
    replaceContent(frame, this.node);
    this.timeline.show(this.frame);
  }

  draw() {
    this.timeline.draw();
  }
}

function gpuSections({ facts: { gpu } }, timeline) {
  const { summary } = gpu;
  const path = summary.critical_path;
  const hasRanges = path.ranges.some(({ range }) => range !== null);
  return element(
    "div",
    { class: "view" },
    element("h1", {}, "GPU time"),
    element("p", { class: "about" }, measuredBy(gpu)),
    gpuCards(gpu),
    wallBar(summary.wall),
    element("h2", {}, "Timeline of the replay"),
    timeline,
    gpu.not_drawn > 0
      ? element("p", { class: "more dim" }, `${count(gpu.not_drawn)} later ones are not drawn.`)
      : null,
    element("h2", {}, "Busiest kernels, copies and memsets"),
    workTable(summary.work).node,
    gpu.counters ? counterSection(gpu.counters) : null,
    element("h2", {}, "Critical path"),
    element(
      "p",
      { class: "about" },
      "The chain of work and calls that bounds the time: making anything else faster changes " +
        "nothing.",
    ),
    pathTable(path).node,
    hasRanges ? [element("h3", {}, "By range"), rangeShareTable(path).node] : null,
    summary.timelines.map((of) => deviceSection(of, summary.timelines.length, gpu.devices)),
    element("h2", {}, "Where the host waited"),
    stallTable(summary.stalls).node,
    notesTable(gpu.notes),
  );
}

function measuredBy({ method, runs, devices }) {
  const by =
    method.by === "cupti"
      ? `CUPTI ${method.version}`
      : "events around each call’s work: no kernels of graphs, and short work appears longer";
  const known = devices.map(({ name }) => name).filter((name) => name !== "unknown");
  const on = known.length > 0 ? ` on ${[...new Set(known)].join(", ")}` : "";
  return (
    `${counted(runs, "replay")}${on}, measured by ${by}. Times are those of ` +
    "the replay, not of the recording: the replay does not do the program’s own work."
  );
}

function gpuCards({ summary, clocks, lost, not_timed: notTimed, runs }) {
  const path = summary.critical_path;
  const { wall_ns: wall, busy_ns: busy } = summary;
  const interval = runs > 1 ? `${duration(wall.low)} to ${duration(wall.high)}` : "one replay";
  const longest = summary.work[0];
  const missing = lost + notTimed;
  return element(
    "div",
    { class: "cards" },
    card("First call to end", duration(wall.median), { note: interval }),
    card("GPU had work", share(busy.median, wall.median), { note: duration(busy.median) }),
    card("Work on critical path", share(path.work_ns, path.wall_ns), {
      note: duration(path.work_ns),
    }),
    longest
      ? card("Busiest", share(longest.share, 1), { note: shortName(longest.name) })
      : null,
    summary.recorded_wall_ns === null
      ? null
      : card("Recorded", duration(summary.recorded_wall_ns), { note: "the same calls" }),
    clocks
      ? card("Clock", `${count(clocks.sm_mhz[1])} MHz`, {
          note: Object.keys(clocks.lowered).join(", ") || "not lowered",
          tone: Object.keys(clocks.lowered).length ? "warning" : "",
        })
      : null,
    missing > 0
      ? card("Not measured", count(missing), { note: "pieces of work", tone: "warning" })
      : null,
  );
}

function shortName(name) {
  return name.length > 60 ? `${name.slice(0, 40)}…${name.slice(-18)}` : name;
}

function wallBar(wall) {
  const parts = [
    [wall.start_ns, "--kind-code", "before the first call: the replay starts"],
    [wall.busy_ns, "--kind-launch", "the GPU had work"],
    [wall.latency_ns, "--kind-order", "no work, although it was enqueued"],
    [wall.launch_ns, "--kind-memory", "no work: the host was enqueueing it"],
    [wall.call_ns, "--kind-wait", "no work: the host was in other calls"],
    [wall.before_calls_ns, "--memory-managed", "no work, no call: the replay prepares a call"],
    [wall.after_calls_ns, "--kind-copy", "no work, no call: the replay takes over results"],
    [wall.between_ns, "--kind-other", "no work, no call: the replay reads the trace, and the rest"],
    [wall.finish_ns, "--kind-fill", "after the last call and work"],
  ];
  return [
    element("h2", {}, "What the replay’s time is made up of"),
    element("p", { class: "about" }, `From the start of its process to the end, ${duration(wall.total_ns)}:`),
    shareBar(
      parts
        .filter(([time]) => time > 0)
        .map(([time, colour, words]) => ({
          colour,
          part: time / wall.total_ns,
          text: `${words}: ${duration(time)} (${share(time, wall.total_ns)})`,
        })),
    ),
  ];
}

function speed(row) {
  if (row.bytes_per_second !== null) {
    const unit = [
      [1e12, "TB/s"],
      [1e9, "GB/s"],
      [1e6, "MB/s"],
    ].find(([scale]) => row.bytes_per_second >= scale) ?? [1e3, "kB/s"];
    return `${(row.bytes_per_second / unit[0]).toFixed(1)} ${unit[1]}`;
  }
  return row.occupancy === null ? "–" : `${row.occupancy.waves.toFixed(1)} waves`;
}

function workTable(rows) {
  const longest = Math.max(1, ...rows.map((row) => row.total_ns.median));
  return new SortedTable({
    caption: "Busiest work",
    rows,
    none: "Nothing ran on the GPU.",
    sort: { column: 2, descending: true },
    columns: [
      { title: "Kernel or copy", class: "name", value: (row) => row.name, cell: (row) => row.name },
      { title: "Share", right: true, value: (row) => row.share, cell: (row) => share(row.share, 1) },
      {
        title: "Total",
        right: true,
        value: (row) => row.total_ns.median,
        bar: (row) => row.total_ns.median / longest,
        cell: (row) => duration(row.total_ns.median),
      },
      { title: "Count", right: true, value: (row) => row.count, cell: (row) => count(row.count) },
      {
        title: "Median",
        right: true,
        value: (row) => row.each_ns[1],
        cell: (row) => duration(row.each_ns[1]),
      },
      {
        title: "Longest",
        right: true,
        value: (row) => row.each_ns[2],
        cell: (row) => duration(row.each_ns[2]),
      },
      { title: "At call", right: true, cell: (row) => callOrNothing(row.longest_call) },
      {
        title: "Speed, waves",
        right: true,
        hint: "Bytes a second of copies; how often a launch fills the GPU",
        value: (row) => row.bytes_per_second ?? row.occupancy?.waves,
        cell: speed,
      },
    ],
  });
}

/** What hardware counters say of kernels. */
function counterSection({ kernels, passes, version, left_out: leftOut = {} }) {
  const part = (value) => (value === null ? "–" : `${(value * 100).toFixed(0)} %`);
  const column = (title, key, hint) => ({
    title,
    hint,
    right: true,
    value: (row) => row[key],
    cell: (row) => part(row[key]),
  });
  const stalls = (row) =>
    row.stalls
      .filter(({ reason, share }) => reason !== "selected" && share >= 0.05)
      .slice(0, 3)
      .map(({ reason, share }) => `${reason} ${part(share)}`)
      .join(", ");
  const table = new SortedTable({
    caption: "Hardware counters",
    rows: kernels,
    sort: { column: 2, descending: true },
    columns: [
      { title: "Kernel", class: "name", value: (row) => row.name, cell: (row) => row.name },
      { title: "At call", right: true, value: (row) => row.call, cell: (row) => callLink(row.call) },
      {
        title: "Time",
        right: true,
        hint: "With empty caches and nothing else on the GPU",
        value: (row) => row.duration_ns,
        cell: (row) => (row.duration_ns === null ? "–" : duration(row.duration_ns)),
      },
      column("DRAM", "dram_share", "Of what the GPU’s memory can move"),
      column("SM", "sm_share", "Of what the multiprocessors can compute"),
      column("L1 hit", "l1_hit_rate"),
      column("L2 hit", "l2_hit_rate"),
      column("Warps", "occupancy", "Warps on a multiprocessor, of those that it has room for"),
      {
        title: "FLOP/byte",
        right: true,
        value: (row) => row.roofline?.intensity,
        cell: (row) => row.roofline?.intensity?.toFixed(2) ?? "–",
      },
      {
        title: "Of its roof",
        right: true,
        hint: "How close it is to what memory or multiprocessors allow at its operations a byte",
        value: (row) => row.roofline?.roof_share,
        cell: ({ roofline }) =>
          roofline?.bound ? `${part(roofline.roof_share)} ${roofline.bound}` : "–",
      },
      { title: "Warps stalled for", cell: stalls },
    ],
  });
  return [
    element("h2", {}, "Hardware counters"),
    element(
      "p",
      { class: "about" },
      `${counted(kernels.length, "kernel")} in ${counted(passes, "pass", "passes")}, measured by ` +
        `ncu ${version} in a replay of its own.`,
    ),
    table.node,
    facts(Object.entries(leftOut).map(([call, why]) => [`no counters of call ${call}`, why])),
  ];
}

function callOrNothing(call) {
  return call === null ? "–" : callLink(call);
}

const PATH_WORDS = {
  latency: "latency before it",
  "host-function": "a function of the host",
  return: "return of the wait",
  between: "the host between calls",
};

function pathTable({ shares, wall_ns: wall }) {
  const longest = Math.max(1, ...shares.map((row) => row.total_ns));
  return new SortedTable({
    caption: "Critical path",
    rows: shares,
    none: "Nothing was measured.",
    sort: { column: 3, descending: true },
    columns: [
      { title: "What", value: (row) => row.link, cell: (row) => PATH_WORDS[row.link] ?? row.link },
      { title: "Name", class: "name", value: (row) => row.name, cell: (row) => row.name },
      { title: "Share", right: true, cell: (row) => share(row.total_ns, wall) },
      {
        title: "Time",
        right: true,
        value: (row) => row.total_ns,
        bar: (row) => row.total_ns / longest,
        cell: (row) => duration(row.total_ns),
      },
      { title: "Count", right: true, value: (row) => row.count, cell: (row) => count(row.count) },
      {
        title: "Longest",
        right: true,
        value: (row) => row.longest_ns,
        cell: (row) => duration(row.longest_ns),
      },
      { title: "At call", right: true, cell: (row) => callOrNothing(row.longest_call) },
    ],
  });
}

function rangeShareTable({ ranges, wall_ns: wall }) {
  return new SortedTable({
    caption: "Critical path by range",
    rows: ranges,
    sort: { column: 1, descending: true },
    columns: [
      {
        title: "Range",
        class: "name",
        value: (row) => row.range ?? "",
        cell: (row) => row.range ?? "(in no range)",
      },
      {
        title: "Time",
        right: true,
        value: (row) => row.total_ns,
        bar: (row) => row.total_ns / Math.max(1, wall),
        cell: (row) => duration(row.total_ns),
      },
      { title: "Share", right: true, cell: (row) => share(row.total_ns, wall) },
      {
        title: "Work of the GPU",
        right: true,
        value: (row) => row.work_ns,
        cell: (row) => share(row.work_ns, row.total_ns),
      },
    ],
  });
}

/** What a device did with the time, and what it waited for. */
function deviceSection(of, devices, known) {
  const name = known.find(({ ordinal }) => ordinal === of.device)?.name;
  const parts = [
    ["work ran", of.busy_ns],
    ["two or more pieces of work at once", of.overlap_ns],
    ["no work: the host had not enqueued it yet", of.idle_host_ns],
    ["no work: the host was enqueueing it", of.idle_launch_ns],
    ["no work, although it was enqueued", of.idle_device_ns],
  ];
  const waited = Object.entries(of.idle_host_in).map(([where, time]) => ({ where, time }));
  return [
    element("h2", {}, devices > 1 ? `GPU ${of.device}, ${name}: gaps` : "Gaps"),
    facts(
      parts
        .filter(([, time]) => time > 0)
        .map(([words, time]) => [words, `${duration(time)} (${share(time, of.wall_ns)})`]),
    ),
    waited.length > 0
      ? [
          element("h3", {}, "Where the host was while the GPU waited for it"),
          new SortedTable({
            caption: "Where the host was while the GPU waited for it",
            rows: waited,
            sort: { column: 1, descending: true },
            columns: [
              { title: "Host in", class: "name", value: (row) => row.where, cell: (row) => row.where },
              {
                title: "Time",
                right: true,
                value: (row) => row.time,
                bar: (row) => row.time / Math.max(1, of.wall_ns),
                cell: (row) => duration(row.time),
              },
            ],
          }).node,
        ]
      : null,
    element("h3", {}, "By stream"),
    new SortedTable({
      caption: "Streams on the GPU",
      rows: of.streams,
      sort: { column: 2, descending: true },
      columns: [
        { title: "Stream", value: (row) => row.name, cell: (row) => row.name },
        { title: "Work", right: true, value: (row) => row.work, cell: (row) => count(row.work) },
        {
          title: "Ran",
          right: true,
          value: (row) => row.busy_ns,
          bar: (row) => row.busy_ns / Math.max(1, of.wall_ns),
          cell: (row) => duration(row.busy_ns),
        },
        {
          title: "Gaps",
          right: true,
          value: (row) => row.gaps_ns,
          cell: (row) => duration(row.gaps_ns),
        },
        {
          title: "Longest gap",
          right: true,
          value: (row) => row.longest_gap_ns,
          cell: (row) => duration(row.longest_gap_ns),
        },
        { title: "Before call", right: true, cell: (row) => callOrNothing(row.longest_gap_before) },
      ],
    }).node,
    of.stretches.length > 0
      ? [
          element("h3", {}, "Launch-bound: each piece of work waited for the host"),
          stretchTable(of.stretches).node,
        ]
      : null,
  ];
}

function stretchTable(stretches) {
  return new SortedTable({
    caption: "Launch-bound stretches",
    rows: stretches,
    sort: { column: 3, descending: true },
    columns: [
      {
        title: "Calls",
        value: (row) => row.first,
        cell: (row) => [callLink(row.first), " to ", callLink(row.last)],
      },
      { title: "Work", right: true, value: (row) => row.work, cell: (row) => count(row.work) },
      {
        title: "Time",
        right: true,
        value: (row) => row.wall_ns,
        cell: (row) => duration(row.wall_ns),
      },
      {
        title: "Without work",
        right: true,
        value: (row) => row.idle_ns,
        cell: (row) => `${duration(row.idle_ns)} (${share(row.idle_ns, row.wall_ns)})`,
      },
    ],
  });
}

function stallTable(stalls) {
  return new SortedTable({
    caption: "Host waits",
    rows: stalls,
    none: "No call waits.",
    sort: { column: 2, descending: true },
    columns: [
      { title: "Function", value: (row) => row.function, cell: (row) => row.function },
      { title: "Calls", right: true, value: (row) => row.calls, cell: (row) => count(row.calls) },
      {
        title: "Time",
        right: true,
        value: (row) => row.total_ns,
        cell: (row) => duration(row.total_ns),
      },
      {
        title: "With work on the GPU",
        right: true,
        value: (row) => row.busy_ns,
        cell: (row) => share(row.busy_ns, row.total_ns),
      },
      {
        title: "Recorded",
        right: true,
        value: (row) => row.recorded_ns,
        cell: (row) => duration(row.recorded_ns),
      },
      { title: "Longest at call", right: true, cell: (row) => callOrNothing(row.longest_call) },
    ],
  });
}
