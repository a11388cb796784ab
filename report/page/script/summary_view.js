// The summary: what `cutape info` says, and where the time in the driver went.

function summaryView(app) {
  const { summary } = app.facts;
  return element(
    "div",
    { class: "view" },
    element("h1", {}, programName(summary)),
    element("p", { class: "about code" }, summary.program.arguments.join(" ")),
    missingCalls(summary.trace).map((text) => element("p", { class: "about warning" }, text)),
    summaryCards(app),
    timeByKind(app),
    element("h2", {}, "Program and machine"),
    facts(programFacts(summary, app.trace.clock)),
    element("h2", {}, "Calls by function"),
    functionTable(app).node,
    summary.ranges.length > 0 ? rangeTables(app) : null,
    element("h2", {}, "Copies"),
    copyTable(summary).node,
    summary.exchanges ? exchangeTable(app) : null,
    element("h2", {}, "Threads"),
    threadTable(summary).node,
    summary.failed.length > 0 ? callList("Failed calls", summary.failed) : null,
    summary.in_flight.length > 0 ? callList("Calls that did not return", summary.in_flight) : null,
    summary.remarks.length > 0
      ? [
          element("h2", {}, "Remarks of the recorder"),
          element(
            "ul",
            {},
            summary.remarks.map((text) => element("li", {}, withCallLinks(text))),
          ),
        ]
      : null,
  );
}

// As every verb says it first.
function missingCalls({ still_recording, ended_early, lacks_parts }) {
  const lines = [];
  if (ended_early) lines.push(`The recording ended early, later calls are missing: ${ended_early}`);
  if (lacks_parts) {
    lines.push(`Some call stacks, markers or facts about the machine are missing: ${lacks_parts}`);
  }
  if (still_recording) lines.push("Still recording; this is the trace as it was then");
  return lines;
}

function programName({ program, trace }) {
  return (program.path ?? trace.path).split("/").pop();
}

function card(label, value, { note = null, href = null, tone = "" } = {}) {
  return element(
    href ? "a" : "div",
    { class: "card", href },
    element("div", { class: "label" }, label),
    element("div", { class: `value ${tone}` }, value),
    note ? element("div", { class: "note" }, note) : null,
  );
}

function summaryCards(app) {
  const { summary } = app.facts;
  const { calls } = summary;
  const leaked = summary.never_destroyed.reduce((sum, { count: number }) => sum + number, 0);
  const copied = summary.copies.host_to_device_bytes + summary.copies.device_to_host_bytes;
  const { errors, warnings, advice } = app.findings.counts();
  const worst = errors ? "error" : warnings ? "warning" : "good";
  const { peak } = app.series;
  return element(
    "div",
    { class: "cards" },
    card("Findings", app.findings.list.length === 0 ? "none" : count(app.findings.list.length), {
      note:
        app.findings.list.length === 0
          ? "no misuse of the API found"
          : [
              [errors, "error"],
              [warnings, "warning"],
              [advice, "advice", "advice"],
            ]
              .filter(([number]) => number)
              .map(([number, one, many]) => counted(number, one, many))
              .join(", "),
      href: "#/findings",
      tone: worst,
    }),
    card("Calls", count(calls.total), {
      note: [
        calls.failed ? `${count(calls.failed)} failed` : "none failed",
        calls.in_flight ? `${count(calls.in_flight)} in flight` : null,
      ]
        .filter(Boolean)
        .join(", "),
      href: "#/calls",
    }),
    card("Duration", duration(summary.duration_ns), {
      href: "#/timeline",
      note: summary.duration_ns === null ? "the clock only counts" : "of the recording",
    }),
    card("Launches", count(summary.launches), {
      note: [
        counted(summary.kernels.length, "kernel"),
        summary.graph_kernels ? `${count(summary.graph_kernels)} more in graphs` : null,
      ]
        .filter(Boolean)
        .join(", "),
      href: "#/kernels",
    }),
    card("Peak memory", bytes(peak.bytes), {
      href: "#/memory",
      note: peak.call === null ? "nothing allocated" : `after call ${count(peak.call)}`,
    }),
    card("Copied", bytes(copied), { note: "between host and device" }),
    card("Never destroyed", count(leaked), {
      note: leaked === 1 ? "object" : "objects",
      href: "#/leaks",
    }),
  );
}

/** The functions of kind `other` that took the most time, because its name says nothing. */
function longestOthers({ summary, functions }) {
  const kinds = new Map(functions.map(({ name, kind }) => [name, kind]));
  const others = summary.functions.filter((row) => (kinds.get(row.function) ?? "other") === "other");
  others.sort((a, b) => (b.total_ns ?? b.calls) - (a.total_ns ?? a.calls));
  const names = others.slice(0, 3).map((row) => row.function);
  return names.join(", ") + (others.length > names.length ? ", …" : "");
}

function timeByKind({ trace, facts: all }) {
  const times = new Float64Array(KINDS.length);
  const counts = new Uint32Array(KINDS.length);
  for (let call = 0; call < trace.calls; call++) {
    const kind = trace.kindOf(call);
    times[kind] += trace.duration[call];
    counts[kind] += 1;
  }
  const total = times.reduce((sum, time) => sum + time, 0);
  const rows = KINDS.map(([key, name], kind) => ({ key, name, kind }))
    .filter(({ kind }) => counts[kind] > 0)
    .sort((a, b) => times[b.kind] - times[a.kind]);
  const describe = ({ key, name, kind }) => {
    const what = key === "other" ? `: ${longestOthers(all)}` : "";
    return `${name} ${duration(times[kind], trace.clock)} (${share(times[kind], total)})${what}`;
  };
  return [
    element("h2", {}, "Time in the driver"),
    element(
      "p",
      { class: "about" },
      `Calls took ${duration(total, trace.clock)}, summed over all threads, by what they do:`,
    ),
    shareBar(
      rows.map((row) => ({
        colour: `--kind-${row.key}`,
        part: total ? times[row.kind] / total : 1,
        text: describe(row),
      })),
    ),
  ];
}

/** Parts of a whole as a bar, with a legend. A part has `colour`, a property of CSS, and `text`. */
function shareBar(parts) {
  return [
    element(
      "div",
      { class: "shares", "aria-hidden": "true" },
      parts.map(({ colour, part, text }) =>
        element("i", {
          title: text,
          style: { "flex-grow": String(part), "flex-basis": "0", background: `var(${colour})` },
        }),
      ),
    ),
    element(
      "ul",
      { class: "legend" },
      parts.map(({ colour, text }) => element("li", {}, swatch(colour), text)),
    ),
  ];
}

function programFacts({ program, machine, trace, started_unix_ns: started, digests }, clock) {
  const end =
    program.exit_signal !== null
      ? `signal ${program.exit_signal}`
      : program.exit_status !== null
        ? `exit status ${program.exit_status}`
        : "unknown";
  const version = machine.driver_version;
  const driver =
    version === null
      ? null
      : `CUDA ${Math.floor(version / 1000)}.${Math.floor((version % 1000) / 10)}`;
  return [
    ["program", program.path],
    ["folder", program.directory],
    ["process", [program.process, program.rank === null ? "" : `, rank ${program.rank}`].join("")],
    ["ended", end],
    ["started", started ? new Date(started / 1e6).toISOString().replace("T", " ") : null],
    ["system", machine.kernel],
    [
      "driver",
      [driver, machine.driver_kind === "null" ? "null driver" : null, machine.driver_path]
        .filter(Boolean)
        .join(", "),
    ],
    ...machine.devices.map((device) => [
      "GPU",
      [
        device.name,
        device.compute_capability ? `compute capability ${device.compute_capability}` : null,
        device.memory_bytes ? bytes(device.memory_bytes) : null,
      ]
        .filter(Boolean)
        .join(", "),
    ]),
    ["trace", `${trace.path}, ${bytes(trace.bytes)}, format ${trace.format}`],
    ["blobs", `${counted(trace.blobs, "blob")}, ${bytes(trace.blob_bytes)}`],
    ["recorder", trace.recorder_version && `cutape ${trace.recorder_version}`],
    ["call stacks", trace.stacks],
    ["clock", clock === "ns" ? null : "a counter: times are numbers of steps"],
  ];
}

/** How many calls failed. */
function failures(number) {
  return number ? element("span", { class: "failed" }, count(number)) : "–";
}

function functionTable({ facts: { summary, functions }, trace }) {
  const kinds = new Map(functions.map(({ name, kind }) => [name, kind]));
  const longest = Math.max(1, ...summary.functions.map((row) => row.total_ns ?? row.calls));
  const filterBy = (name) => element("a", { href: `#/calls?function:${name}` }, name);
  return new SortedTable({
    caption: "Calls by function",
    rows: summary.functions,
    sort: { column: summary.duration_ns === null ? 1 : 4, descending: true },
    columns: [
      {
        title: "Function",
        class: "name",
        value: (row) => row.function,
        cell: (row) => [
          swatch(`--kind-${kinds.get(row.function) ?? "other"}`),
          " ",
          filterBy(row.function),
        ],
      },
      { title: "Calls", right: true, value: (row) => row.calls, cell: (row) => count(row.calls) },
      {
        title: "Failed",
        right: true,
        value: (row) => row.failed,
        cell: (row) => failures(row.failed),
      },
      {
        title: "In flight",
        right: true,
        value: (row) => row.in_flight,
        cell: (row) => (row.in_flight ? count(row.in_flight) : "–"),
      },
      {
        title: "Total",
        right: true,
        value: (row) => row.total_ns,
        bar: (row) => (row.total_ns ?? 0) / longest,
        cell: (row) => duration(row.total_ns, trace.clock),
      },
      {
        title: "Mean",
        right: true,
        value: (row) => row.mean_ns,
        cell: (row) => duration(row.mean_ns),
      },
      {
        title: "Longest",
        right: true,
        value: (row) => row.max_ns,
        cell: (row) => duration(row.max_ns),
      },
    ],
  });
}

function rangeTables({ facts: { summary } }) {
  const table = new SortedTable({
    caption: "Ranges",
    rows: summary.ranges,
    columns: [
      { title: "Range", class: "name", value: (row) => row.range, cell: (row) => row.range },
      { title: "Domain", value: (row) => row.domain ?? "", cell: (row) => row.domain ?? "–" },
      { title: "Times", right: true, value: (row) => row.count, cell: (row) => count(row.count) },
      { title: "Calls", right: true, value: (row) => row.calls, cell: (row) => count(row.calls) },
      {
        title: "Launches",
        right: true,
        value: (row) => row.launches,
        cell: (row) => count(row.launches),
      },
      {
        title: "Total",
        right: true,
        value: (row) => row.total_ns,
        cell: (row) => duration(row.total_ns),
      },
      {
        title: "Mean",
        right: true,
        value: (row) => row.mean_ns,
        cell: (row) => duration(row.mean_ns),
      },
      {
        title: "Longest",
        right: true,
        value: (row) => row.max_ns,
        cell: (row) => duration(row.max_ns),
      },
    ],
  });
  return [element("h2", {}, "Ranges of the program"), table.node];
}

function copyTable({ copies }) {
  const directions = [
    ["host to device", copies.host_to_device_bytes],
    ["device to host", copies.device_to_host_bytes],
    ["device to device", copies.device_to_device_bytes],
    ["host to host", copies.host_to_host_bytes],
    ["filled (memset)", copies.filled_bytes],
  ].filter(([, amount]) => amount > 0);
  const rows = directions.map(([direction, amount]) => ({
    direction,
    text: bytes(amount),
    amount,
  }));
  if (copies.unknown_copies > 0) {
    const text = counted(copies.unknown_copies, "copy", "copies");
    rows.push({ direction: "of unknown size or direction", text, amount: 0 });
  }
  return new SortedTable({
    caption: "Copies by direction",
    rows,
    none: "The program copied nothing.",
    columns: [
      { title: "Direction", value: (row) => row.direction, cell: (row) => row.direction },
      { title: "Bytes", right: true, value: (row) => row.amount, cell: (row) => row.text },
    ],
  });
}

/** What `record --outputs-of-exchanges` has kept. */
function exchangeTable({ facts: { summary, kernels } }) {
  const { exchanges } = summary;
  const names = new Map(kernels.map(({ name, shown }) => [name, shown]));
  const gaps = Object.entries(exchanges.left_out).map(
    ([reason, number]) => `${count(number)} ${reason}`,
  );
  const unread = exchanges.compared - exchanges.complete;
  if (unread > 0) {
    gaps.push(`${count(unread)} not complete when the recording ended`);
  }
  if (exchanges.left_out_bytes > 0) {
    gaps.push(`not kept: ${bytes(exchanges.left_out_bytes)}`);
  }
  const text = [
    `${counted(exchanges.calls, "call")} exchanged data with other processes: `,
    `${bytes(exchanges.compared_bytes)} of own memory compared, `,
    `${bytes(exchanges.changed_bytes)} changed and kept`,
    ...gaps.map((gap) => `; ${gap}`),
    ".",
  ];
  const shownName = ({ kernel, function: name }) =>
    kernel === null ? name : (names.get(kernel) ?? kernel);
  const amount = (title, key) => ({
    title,
    right: true,
    value: (row) => row[key],
    cell: (row) => bytes(row[key]),
  });
  const table = new SortedTable({
    caption: "Exchanges by kernel",
    rows: exchanges.by_kernel,
    none: "No call exchanged data with other processes.",
    columns: [
      {
        title: "Kernel or function",
        class: "name",
        value: shownName,
        cell: (row) => element("span", { title: row.kernel ?? row.function }, shownName(row)),
      },
      { title: "Calls", right: true, value: (row) => row.calls, cell: (row) => count(row.calls) },
      amount("Compared", "compared_bytes"),
      amount("Changed", "changed_bytes"),
      amount("Not kept", "left_out_bytes"),
    ],
  });
  return [
    element("h2", {}, "Exchanges with other processes"),
    element("p", { class: "about" }, text.join("")),
    table.node,
  ];
}

function threadTable({ threads }) {
  return new SortedTable({
    caption: "Threads",
    rows: threads,
    columns: [
      { title: "Thread", right: true, value: (row) => row.ordinal, cell: (row) => row.ordinal },
      {
        title: "System’s number",
        right: true,
        value: (row) => row.number,
        cell: (row) => row.number || "–",
      },
      { title: "Name", class: "text", value: (row) => row.name, cell: (row) => row.name || "–" },
      {
        title: "Calls",
        right: true,
        value: (row) => row.calls,
        cell: (row) => element("a", { href: `#/calls?thread:${row.ordinal}` }, count(row.calls)),
      },
    ],
  });
}

/** Calls with their text, as `info` lists them. */
function callList(title, calls) {
  const table = new SortedTable({
    caption: title,
    rows: calls,
    columns: [
      { title: "Call", right: true, value: (row) => row.call, cell: (row) => callLink(row.call) },
      { title: "Arguments", class: "name", cell: (row) => row.text },
      {
        title: "Result",
        class: "name",
        cell: (row) => resultWords(row.result),
      },
    ],
  });
  return [element("h2", {}, title), table.node];
}
