// A replay's report, as `cutape replay --report` writes it.

function replayView(app) {
  const { replay } = app.facts;
  const agrees = replay.divergence_count === 0 && !replay.died;
  // The replay does the work of these calls by others, as `cutape replay` counts them.
  const emulated = Object.values(replay.calls_emulated ?? {}).reduce(
    (sum, calls) => sum + calls,
    0,
  );
  const notCompared = replay.bytes_not_compared ?? 0;
  return element(
    "div",
    { class: "view" },
    element("h1", {}, "Replay"),
    element(
      "p",
      { class: "about" },
      agrees
        ? [badge("good", "agrees"), " All that was compared is equal to the recording."]
        : [
            badge("error", replay.died ? "died" : "diverges"),
            replay.died
              ? [" ", withCallLinks(replay.died.text)]
              : " The replay differs from the recording.",
          ],
    ),
    element(
      "div",
      { class: "cards" },
      card("Divergences", count(replay.divergence_count), {
        tone: replay.divergence_count ? "error" : "good",
      }),
      card("Calls replayed", count(replay.calls_replayed + emulated), {
        note: `of ${count(replay.calls)}`,
      }),
      card("Launches", count(replay.launches ?? 0)),
      card("Results compared", count(replay.results_compared ?? 0)),
      card("Copies compared", count(replay.copies_compared ?? 0), {
        note: bytes(replay.bytes_compared) + (notCompared ? `, ${bytes(notCompared)} not` : ""),
      }),
      card("Memory placed", count(replay.placed.at_recorded_address), {
        note: `of ${counted(replay.placed.allocations, "allocation")} at the recorded address`,
      }),
      card("Duration", duration(replay.wall_seconds * 1e9), { note: "first call to last" }),
    ),
    divergenceTable(app, "Divergences", replay.divergences, replay.divergence_count),
    divergenceTable(app, "Changed by host functions", replay.host_changed, replay.host_changed_count),
    divergenceTable(app, "Depends on replaced input", replay.changed_input, replay.changed_input_count),
    replay.error_cause
      ? [
          element("h2", {}, "Cause of the error"),
          element(
            "p",
            {},
            callLink(replay.error_cause.call, `call ${count(replay.error_cause.call)}`),
            ` ${replay.error_cause.function}`,
            replay.error_cause.kernel ? ` of ${replay.error_cause.kernel}` : "",
            `: ${replay.error_cause.error}`,
          ),
        ]
      : null,
    timingTable(replay.timing),
    skippedTable("Not re-issued", replay.skipped),
    machineTable(replay.machine),
    notesTable(replay.notes),
  );
}

/** What is known of a divergence beside the two values, in lines. */
function divergenceDetails({ first_differing_byte: first, differing_bytes: differing, ...row }) {
  const isKnown = (value) => value !== null && value !== undefined;
  const lines = [...row.history];
  if (row.kernel) {
    lines.unshift(`kernel ${row.kernel}`);
  }
  if (isKnown(row.enqueued_by)) {
    lines.unshift(`enqueued by call ${row.enqueued_by}`);
  }
  if (isKnown(first)) {
    lines.unshift(`first differing byte ${count(first)}, ${count(differing ?? 0)} differ`);
  }
  return lines;
}

/** Who wrote the bytes that a copy returned, and that differ. */
function whyOfDivergence(app, { call, first_differing_byte: first }) {
  const isCopy = first !== null && first !== undefined && app.trace.kindOf(call) === KIND_NUMBER.get("copy");
  return isCopy ? element("li", {}, whyCommand(app, `--result ${call}`)) : null;
}

function divergenceTable(app, title, rows, total) {
  if (!total) {
    return null;
  }
  const table = new SortedTable({
    caption: title,
    rows,
    detail: (row) =>
      element(
        "ul",
        {},
        divergenceDetails(row).map((line) => element("li", {}, withCallLinks(line))),
        whyOfDivergence(app, row),
      ),
    columns: [
      { title: "Call", value: (row) => row.call, cell: (row) => callLink(row.call) },
      {
        title: "Function",
        class: "name",
        value: (row) => row.function,
        cell: (row) => row.function,
      },
      { title: "What", cell: (row) => [row.what, row.parameter].filter(Boolean).join(" ") },
      { title: "Recorded", class: "name", cell: (row) => row.expected },
      { title: "Replayed", class: "name", cell: (row) => row.received },
      { title: "Verdict", value: (row) => row.verdict, cell: (row) => row.verdict },
    ],
  });
  const rest =
    total > rows.length
      ? element(
          "p",
          { class: "more dim" },
          `The report lists the first ${count(rows.length)} of ${count(total)}.`,
        )
      : null;
  return [element("h2", {}, title), table.node, rest];
}

function timingTable(timing) {
  const rows = Object.entries(timing).map(([name, times]) => ({ name, ...times }));
  if (rows.length === 0) {
    return null;
  }
  const table = new SortedTable({
    caption: "Time in the driver by function",
    rows,
    sort: { column: 2, descending: true },
    columns: [
      { title: "Function", class: "name", value: (row) => row.name, cell: (row) => row.name },
      { title: "Calls", right: true, value: (row) => row.calls, cell: (row) => count(row.calls) },
      {
        title: "Replayed",
        right: true,
        value: (row) => row.nanoseconds,
        cell: (row) => duration(row.nanoseconds),
      },
      {
        title: "Recorded",
        right: true,
        value: (row) => row.recorded_nanoseconds,
        cell: (row) => duration(row.recorded_nanoseconds || null),
      },
      {
        title: "Ratio",
        right: true,
        value: (row) => row.nanoseconds / row.recorded_nanoseconds,
        cell: (row) =>
          row.recorded_nanoseconds
            ? `${(row.nanoseconds / row.recorded_nanoseconds).toFixed(2)}×`
            : "–",
      },
    ],
  });
  return [element("h2", {}, "Time in the driver"), table.node];
}

function skippedTable(title, rows) {
  if (rows.length === 0) {
    return null;
  }
  const table = new SortedTable({
    caption: title,
    rows,
    columns: [
      {
        title: "Function",
        class: "name",
        value: (row) => row.function,
        cell: (row) => row.function,
      },
      { title: "Calls", right: true, value: (row) => row.count, cell: (row) => count(row.count) },
      {
        title: "First",
        right: true,
        value: (row) => row.first,
        cell: (row) => callLink(row.first),
      },
      {
        title: "Reason",
        class: "text",
        value: (row) => row.reason,
        cell: (row) => withCallLinks(row.reason),
      },
    ],
  });
  return [element("h2", {}, title), table.node];
}

function machineTable(rows) {
  if (rows.length === 0) {
    return null;
  }
  const table = new SortedTable({
    caption: "Differences between the machines",
    rows,
    columns: [
      { title: "What", value: (row) => row.what, cell: (row) => row.what },
      { title: "Recorded", class: "text", cell: (row) => row.recorded },
      { title: "Replayed", class: "text", cell: (row) => row.here },
      { title: "Matters because", class: "text", cell: (row) => row.why ?? "" },
    ],
  });
  return [element("h2", {}, "Differences between the machines"), table.node];
}

function notesTable(notes) {
  const rows = Object.entries(notes).map(([note, times]) => ({ note, times }));
  if (rows.length === 0) {
    return null;
  }
  const table = new SortedTable({
    caption: "Notes",
    rows,
    columns: [
      {
        title: "Note",
        class: "text",
        value: (row) => row.note,
        cell: (row) => withCallLinks(row.note),
      },
      { title: "Times", right: true, value: (row) => row.times, cell: (row) => count(row.times) },
    ],
  });
  return [element("h2", {}, "Notes"), table.node];
}
