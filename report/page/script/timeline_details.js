// What the timeline says about the selection, and at the pointer.

function tipOf(timeline, hit) {
  const { trace } = timeline;
  if (hit.isMemory) {
    const changed = ["last changed by ", trace.nameOf(hit.call), `, call ${count(hit.call)}`];
    return [element("div", {}, hit.text), element("div", { class: "dim" }, changed)];
  }
  if (hit.text) {
    return [hit.text];
  }
  if (hit.finding) {
    return [badge(hit.finding.severity), " ", hit.finding.title];
  }
  if (hit.mark !== undefined) {
    const { markTime } = trace.ranges;
    return [
      element("b", {}, trace.ranges.nameOfMark(hit.mark)),
      ` at ${exact(trace, markTime[hit.mark])}`,
    ];
  }
  if (hit.range !== undefined) {
    const { ranges } = trace;
    const time = duration(ranges.duration[hit.range], trace.clock);
    return [element("b", {}, ranges.nameOf(hit.range)), element("div", {}, `range, ${time}`)];
  }
  const { call } = hit;
  const about = trace.about(call);
  return [
    element("b", {}, trace.nameOf(call)),
    about ? element("div", {}, about) : null,
    element(
      "div",
      { class: "dim" },
      `call ${count(call)}, ${callTime(trace, call)}, ${trace.resultText(call)}`,
    ),
  ];
}

function callTime(trace, call) {
  return trace.inFlight.has(call) ? "in flight" : duration(trace.duration[call], trace.clock);
}

/** A moment to the nanosecond. */
function exact(trace, time) {
  return trace.clock === "ns" ? `${(time / 1e6).toFixed(6)} ms` : count(time);
}

function timelineDetails(timeline) {
  const { selection, marked } = timeline;
  if (selection?.range !== undefined) {
    return rangeDetails(timeline, selection.range);
  }
  if (selection?.mark !== undefined) {
    return markDetails(timeline, selection.mark);
  }
  if (selection?.call !== undefined && selection.call !== null) {
    return callDetails(timeline, selection.call, selection.finding);
  }
  if (selection?.finding) {
    return [
      element("h2", {}, badge(selection.finding.severity), " ", selection.finding.title),
      element("p", {}, withCallLinks(selection.finding.message)),
      findingLink(selection.finding),
    ];
  }
  if (marked) {
    return spanDetails(timeline, "Marked time", ...marked);
  }
  return legend();
}

function callDetails(timeline, call, finding) {
  const { app, trace } = timeline;
  const work = trace.workOf(call);
  const kernel = trace.kernelOf(call);
  const shape = trace.shapeOf(call);
  const copy = trace.copyOf(call);
  const findings = finding ? [finding] : app.findings.at(call);
  const when = facts([
    ["call", `${count(call)} of ${count(trace.calls)}`],
    ["begins", exact(trace, trace.time[call])],
    ["takes", callTime(trace, call)],
    ["thread", trace.threadName(trace.thread[call])],
    [
      "result",
      trace.isFailed(call)
        ? element("strong", { class: "failed" }, trace.resultText(call))
        : trace.resultText(call),
    ],
  ]);
  const what = facts([
    ["kernel", kernel && element("code", {}, kernel.shown)],
    ["grid", shape?.grid && dimensions(shape.grid)],
    ["block", shape?.block && dimensions(shape.block)],
    ["shared", shape?.shared ? `${bytes(shape.shared)} dynamic shared memory` : null],
    ["copies", copy && `${bytes(copy.bytes)} ${copy.direction}`],
    ["stream", work && streamText(trace, work.stream)],
    [
      "complete",
      work?.done !== undefined && work?.done !== null
        ? [
            "known after ",
            callLink(work.done, `call ${count(work.done)} ${trace.nameOf(work.done)}`),
          ]
        : null,
    ],
    ["creates", objectText(trace, trace.objects.createdBy(call), "end")],
    ["ends", objectText(trace, trace.objects.endedBy(call), "created")],
    [
      "arguments",
      element("code", {}, `cutape dump ${trace.facts.summary.trace.path} --calls ${call}`),
    ],
  ]);
  return [
    element("h2", {}, trace.nameOf(call)),
    findings.map((found) =>
      element("p", {}, badge(found.severity), ` ${found.title} `, findingLink(found)),
    ),
    element("div", { class: "details-columns" }, when, what),
  ];
}

function findingLink(finding) {
  return element("a", { class: "button", href: `#/finding/${finding.number}` }, "Open the finding");
}

function streamText(trace, stream) {
  return `${stream} (${trace.facts.streams[stream].label})`;
}

function objectText(trace, object, other) {
  if (object === null) {
    return null;
  }
  const { objects } = trace;
  const call = other === "end" ? objects.endOf(object) : objects.created[object];
  const words = other === "end" ? "ended by " : "created by ";
  const link = call === null ? ", never destroyed" : [`, ${words}`, callLink(call, `call ${call}`)];
  return [objects.describe(object), link];
}

function rangeDetails(timeline, range) {
  const { ranges } = timeline.trace;
  const [from, to] = [ranges.begin[range], ranges.endOf(range)];
  return spanDetails(timeline, `Range ${ranges.nameOf(range)}`, from, to);
}

function markDetails(timeline, mark) {
  const { trace } = timeline;
  const { ranges } = trace;
  return [
    element("h2", {}, `Mark ${ranges.nameOfMark(mark)}`),
    facts([
      ["at", exact(trace, ranges.markTime[mark])],
      ["thread", ranges.markThread[mark] ? trace.threadName(ranges.markThread[mark] - 1) : null],
    ]),
  ];
}

/** Counts of the calls that begin in a part of the time. */
function spanDetails(timeline, title, from, to) {
  const { trace, filter } = timeline;
  const first = lowerBound(trace.time, from);
  const last = lowerBound(trace.time, to, first);
  const times = new Float64Array(KINDS.length);
  const counts = new Uint32Array(KINDS.length);
  let [matching, failed] = [0, 0];
  for (let call = first; call < last; call++) {
    if (filter.has(call)) {
      const kind = trace.kindOf(call);
      times[kind] += trace.duration[call];
      counts[kind] += 1;
      matching += 1;
      failed += trace.isFailed(call) ? 1 : 0;
    }
  }
  const rows = KINDS.map(([key, name], kind) => ({ key, name, kind })).filter(
    ({ kind }) => counts[kind] > 0,
  );
  return [
    element("h2", {}, title),
    element(
      "div",
      { class: "details-columns" },
      facts([
        ["begins", exact(trace, from)],
        ["lasts", duration(to - from, trace.clock)],
        ["calls", `${count(matching)}${filter.isActive ? " that match the filter" : ""}`],
        ["failed", failed ? count(failed) : null],
      ]),
      element(
        "ul",
        { class: "legend" },
        rows.map(({ key, name, kind }) =>
          element(
            "li",
            {},
            swatch(`--kind-${key}`),
            `${name}: ${count(counts[kind])}, ${duration(times[kind], trace.clock)}`,
          ),
        ),
      ),
    ),
  ];
}

function swatch(colour) {
  return element("i", { class: "swatch", style: { background: `var(${colour})` } });
}

function legend() {
  return [
    element(
      "ul",
      { class: "legend" },
      KINDS.map(([key, name]) => element("li", {}, swatch(`--kind-${key}`), name)),
      element("li", {}, swatch("--in-flight"), "work not known to be complete"),
      element("li", {}, swatch("--error"), "failed call, error"),
    ),
    element(
      "p",
      { class: "dim" },
      "Threads show when the program was in a call. Streams show the calls that enqueued their " +
        "work and waited for it: a trace has no times of the device. Where calls are narrower " +
        "than a pixel, heights are the share of the time that each kind of call takes.",
    ),
    element(
      "p",
      { class: "dim" },
      "Drag to move, Ctrl+wheel to zoom, Shift+drag to mark a part, click for details; ",
      element("kbd", {}, "?"),
      " lists the keys.",
    ),
  ];
}
