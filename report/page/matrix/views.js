// What `cutape matrix --compare` and `--history` found, as their --report has it.

const VERDICT_TONES = { slower: "error", faster: "good", uncertain: "warning", same: "" };

function percent(value, digits = 1) {
  return `${value > 0 ? "+" : ""}${(100 * value).toFixed(digits)} %`;
}

function threshold(fraction) {
  return `${Number((100 * fraction).toPrecision(6))} %`;
}

function interval({ lower, upper }) {
  return `${percent(lower)} to ${percent(upper)}`;
}

function card(label, value, tone, note) {
  return element(
    "div",
    { class: "card" },
    element("div", { class: "label" }, label),
    element("div", { class: `value ${tone ?? ""}` }, value),
    note ? element("div", { class: "note" }, note) : null,
  );
}

function filesTable(files) {
  const date = (seconds) =>
    seconds ? `${new Date(1000 * seconds).toISOString().slice(0, 16).replace("T", " ")} UTC` : "–";
  const known = (value) => value ?? "unknown";
  const text = (title, cell) => ({ title, class: "text", cell });
  return new SortedTable({
    caption: "Files of results",
    rows: files,
    columns: [
      { title: "File", class: "name", cell: (file) => file.label },
      text("Measured", (file) => date(file.started)),
      text("GPUs", ({ machine }) => machine.gpus.join(", ") || "unknown"),
      text("Driver", ({ machine }) => machine.driver_version ?? machine.driver),
      text("CUDA", ({ machine }) => known(machine.cuda)),
      text("Processor", ({ machine }) => `${known(machine.cpu)}, ${counted(machine.cpus, "core")}`),
      text("cutape", (file) => file.cutape),
      text("State", (file) =>
        file.complete ? "complete" : badge("warning", "incomplete"),
      ),
    ],
  }).node;
}

function differencesList(differences) {
  return differences.length
    ? [
        element("h2", {}, "What else differs"),
        element(
          "ul",
          {},
          differences.map((difference) => element("li", {}, difference)),
        ),
      ]
    : null;
}

function flakyCell(flaws) {
  return flaws.length
    ? element("span", { title: flaws.join("\n") }, badge("warning", "flaky"), ` ${flaws.join("; ")}`)
    : "";
}

/** A section for each trace, with an address. */
function sections(names, section) {
  return names.map((name, at) => {
    const id = `trace-${at}`;
    const { isBad, content } = section(name);
    return { name, id, isBad, node: element("section", { id }, element("h2", {}, name), content) };
  });
}

function namesOf(...lists) {
  return [...new Set(lists.flat().map(({ trace }) => trace))];
}

function replayText(replay) {
  if (!replay) {
    return "not replayed";
  }
  const leftOut = replay.left_out ? `, ${count(replay.left_out)} left out` : "";
  const texts = {
    agrees: `replays: ${counted(replay.calls_replayed, "call")}${leftOut}`,
    diverges: `${counted(replay.divergences, "divergence")}: ${replay.reason ?? ""}`,
    failed: `does not replay: ${replay.reason ?? ""}`,
  };
  return texts[replay.outcome];
}

function replayLine(row, files) {
  const texts = row.replays.map(replayText);
  const isSame = new Set(texts).size === 1;
  const counts = row.mismatches.some((places) => places > 0)
    ? `; replaced kernels wrote other results in ${row.mismatches.map(count).join(", ")} places`
    : "";
  return element(
    "p",
    { class: "about" },
    row.is_worse ? [badge("error", "worse"), " "] : null,
    (isSame
      ? texts[0]
      : texts.map((text, at) => `${files[at].label}: ${text}`).join("; ")) + counts,
  );
}

function changesTable(rows, files) {
  return new SortedTable({
    caption: "Benchmarks",
    rows,
    none: "No benchmark was compared.",
    columns: [
      ...(files.length > 2
        ? [{ title: "File", value: (row) => row.file, cell: (row) => files[row.file].label }]
        : []),
      { title: "Clock", value: (row) => row.clock, cell: (row) => row.clock },
      { title: "Benchmark", class: "name", value: (row) => row.name, cell: (row) => row.name },
      {
        title: "Before",
        right: true,
        value: (row) => row.before.point,
        cell: (row) => duration(row.before.point),
      },
      {
        title: "After",
        right: true,
        value: (row) => row.after.point,
        cell: (row) => duration(row.after.point),
      },
      {
        title: "Change",
        right: true,
        value: (row) => row.change?.point,
        cell: (row) => (row.change ? percent(row.change.point) : "–"),
      },
      {
        title: "95 % interval",
        right: true,
        cell: (row) => (row.change ? interval(row.change) : "one process"),
      },
      {
        title: "Effect",
        right: true,
        hint: "Cliff's delta: 1 if each later sample is slower",
        value: (row) => row.effect,
        cell: (row) => row.effect.toFixed(2),
      },
      {
        title: "p",
        right: true,
        hint: "That the change is below the threshold, adjusted for the number of benchmarks",
        value: (row) => row.p,
        cell: (row) => (row.p === null ? "–" : row.p < 0.001 ? "< 0.001" : row.p.toFixed(3)),
      },
      {
        title: "Verdict",
        value: (row) => row.verdict,
        cell: (row) =>
          VERDICT_TONES[row.verdict] ? badge(VERDICT_TONES[row.verdict], row.verdict) : row.verdict,
      },
      { title: "Disagrees with itself", class: "text", cell: (row) => flakyCell(row.flaky) },
    ],
  }).node;
}

function comparisonView(facts) {
  const { rows, replays, files, not_compared: missing, thresholds } = facts;
  const verdicts = (verdict) => rows.filter((row) => row.verdict === verdict).length;
  const [slower, worse] = [verdicts("slower"), replays.filter((row) => row.is_worse).length];
  const failed = missing.filter((one) => one.is_failure).length;
  const traces = sections(namesOf(replays, rows), (name) => {
    const own = rows.filter(({ trace }) => trace === name);
    const replay = replays.find(({ trace }) => trace === name);
    const isBad = replay?.is_worse || own.some(({ verdict }) => verdict === "slower");
    return {
      isBad,
      content: [replay ? replayLine(replay, files) : null, changesTable(own, files)],
    };
  });
  const lost = new SortedTable({
    caption: "Not compared",
    rows: missing,
    columns: [
      { title: "File", cell: (row) => files[row.file].label },
      { title: "Trace", class: "name", cell: (row) => row.trace },
      { title: "Benchmark", class: "name", cell: (row) => row.name || "all" },
      {
        title: "Why",
        class: "text",
        cell: (row) => [row.is_failure ? badge("error", "failed") : null, ` ${row.reason}`],
      },
    ],
  });
  const node = element(
    "div",
    { class: "view", id: "summary" },
    element("h1", {}, "Comparison"),
    element(
      "p",
      { class: "about" },
      "Each benchmark was measured in several processes, which are what is tested: a change counts " +
        `if it is above ${threshold(thresholds.gpu)} on the device and ${threshold(thresholds.host)} ` +
        "on the host by more than processes differ. Tests are adjusted for the number of " +
        "benchmarks (Holm).",
    ),
    element(
      "div",
      { class: "cards" },
      card("Slower", count(slower), slower ? "error" : "good", `of ${count(rows.length)}`),
      card("Replay worse", count(worse), worse ? "error" : "good"),
      card("No longer measured", count(failed), failed ? "error" : "good"),
      card("Faster", count(verdicts("faster"))),
      card("Same", count(verdicts("same"))),
      card("Uncertain", count(verdicts("uncertain")), verdicts("uncertain") ? "warning" : ""),
      card("Flaky", count(rows.filter(({ flaky }) => flaky.length).length)),
    ),
    element("h2", {}, "Files"),
    filesTable(files),
    differencesList(facts.differences),
    traces.map((trace) => trace.node),
    missing.length ? [element("h2", {}, "Not compared"), lost.node] : null,
  );
  return { traces, node };
}

/** A line through the times of a benchmark, with its changes. */
function sparkline(row) {
  const [width, height] = [180, 28];
  const space = document.querySelector(".brand svg").namespaceURI;
  const make = (tag, properties) => {
    const node = document.createElementNS(space, tag);
    for (const [name, value] of Object.entries(properties)) {
      node.setAttribute(name, value);
    }
    return node;
  };
  const times = row.points.map(({ time }) => time.point);
  const [least, most] = [Math.min(...times), Math.max(...times)];
  // A line that hardly moves must not look like one that does.
  const range = Math.max(most - least, 0.05 * most, 1e-9);
  const middle = (most + least) / 2;
  const x = (at) => 3 + ((width - 6) * at) / Math.max(1, times.length - 1);
  const y = (time) => height / 2 - ((height - 8) * (time - middle)) / range;
  const svg = make("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img" });
  const title = make("title", {});
  title.textContent = times.map((time) => duration(time)).join(", ");
  const points = times.map((time, at) => `${x(at).toFixed(1)},${y(time).toFixed(1)}`).join(" ");
  svg.append(title, make("polyline", { points, fill: "none", stroke: "currentColor" }));
  for (const change of row.changes) {
    const at = row.points.findIndex(({ file }) => file === change.file);
    const dot = make("circle", { cx: x(at), cy: y(times[at]), r: 3 });
    dot.style.fill = change.is_slower ? "var(--error)" : "var(--good)";
    svg.append(dot);
  }
  return svg;
}

function historyView(facts) {
  const { rows, replays, files, thresholds } = facts;
  const isSlower = (row) => row.changes.at(-1)?.is_slower ?? false;
  const [slower, worse] = [rows.filter(isSlower), replays.filter((one) => one.is_worse)];
  const change = (one) => [
    badge(one.is_slower ? "error" : "good", percent(one.change.point)),
    ` since ${files[one.file].label} (${interval(one.change)})`,
  ];
  const table = (own) =>
    new SortedTable({
      caption: "Benchmarks",
      rows: own,
      columns: [
        { title: "Clock", value: (row) => row.clock, cell: (row) => row.clock },
        { title: "Benchmark", class: "name", value: (row) => row.name, cell: (row) => row.name },
        {
          title: "First",
          right: true,
          value: (row) => row.points[0].time.point,
          cell: (row) => duration(row.points[0].time.point),
        },
        {
          title: "Newest",
          right: true,
          value: (row) => row.points.at(-1).time.point,
          cell: (row) => duration(row.points.at(-1).time.point),
        },
        { title: "Times", cell: sparkline },
        {
          title: "Changes",
          class: "text",
          value: (row) => row.changes.length,
          cell: (row) => row.changes.map((one) => element("div", {}, change(one))),
        },
        {
          title: "Disagrees with itself",
          right: true,
          value: (row) => row.points.filter(({ flaky }) => flaky.length).length,
          cell: (row) => {
            const flaky = row.points.filter((point) => point.flaky.length).length;
            return flaky ? `in ${count(flaky)} of ${counted(row.points.length, "file")}` : "";
          },
        },
      ],
    }).node;
  const traces = sections(namesOf(rows, replays), (name) => {
    const own = rows.filter(({ trace }) => trace === name);
    const replay = replays.find(({ trace }) => trace === name);
    const outcomes = replay?.outcomes
      .map((outcome, at) => (outcome ? `${files[at].label}: ${outcome}` : null))
      .filter(Boolean);
    return {
      isBad: replay?.is_worse || own.some(isSlower),
      content: [
        outcomes ? element("p", { class: "about warning" }, `Replays: ${outcomes.join(", ")}`) : null,
        table(own),
      ],
    };
  });
  const node = element(
    "div",
    { class: "view", id: "summary" },
    element("h1", {}, "History"),
    element(
      "p",
      { class: "about" },
      `Changes of more than ${threshold(thresholds.gpu)} on the device and ` +
        `${threshold(thresholds.host)} on the host along ${counted(files.length, "file")}, which are ` +
        "significant over all benchmarks and files.",
    ),
    element(
      "div",
      { class: "cards" },
      card("Slower at the end", count(slower.length), slower.length ? "error" : "good"),
      card("Replay worse", count(worse.length), worse.length ? "error" : "good"),
      card("Changed", count(rows.filter((row) => row.changes.length).length)),
      card("Benchmarks", count(rows.length)),
    ),
    element("h2", {}, "Files"),
    filesTable(files),
    differencesList(facts.differences),
    traces.map((trace) => trace.node),
  );
  return { traces, node };
}
