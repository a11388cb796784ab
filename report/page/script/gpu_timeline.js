// What the GPU ran in a replay, and the replay's calls beside it, as a timeline of its own: its
// clock is not the recording's.

const WORK_KINDS = { kernel: "launch", graph: "launch", copy: "copy", memset: "fill" };

/** Work and calls of the replay, as tracks and lanes take a trace: work first, then calls. */
class GpuTrace {
  constructor({ trace, facts }, columns) {
    this.recorded = trace;
    this.facts = facts;
    this.gpu = facts.gpu;
    this.clock = "ns";
    this.end = this.gpu.end;
    this.inFlight = new Set();
    const join = (of, replayed) => {
      const all = new Float64Array(of.length + replayed.length);
      all.set(of);
      all.set(replayed, of.length);
      return all;
    };
    const of = (name) => columns.get(name);
    this.time = join(of("gpu.begin"), of("replayed.begin"));
    this.duration = join(of("gpu.duration"), of("replayed.duration"));
    /** The call of each, plus one; 0 for work of the replay itself. */
    this.callNumber = join(
      of("gpu.call"),
      of("replayed.call").map((call) => call + 1),
    );
    this.name = of("gpu.name");
    this.stream = of("gpu.stream");
    this.calls = this.name.length;
    this.kind = Uint8Array.from(this.time, (_, at) => this.#kind(at));
    this.shownKind = this.kind;
  }

  #kind(at) {
    if (at < this.calls) {
      return KIND_NUMBER.get(WORK_KINDS[this.gpu.names[this.name[at]].kind]);
    }
    const call = this.callOf(at);
    return call !== null && call < this.recorded.calls
      ? this.recorded.kindOf(call)
      : KIND_NUMBER.get("other");
  }

  /** The recorded call of a piece of work or of a replayed call; null if there is none. */
  callOf(at) {
    return this.callNumber[at] === 0 ? null : this.callNumber[at] - 1;
  }

  nameOf(at) {
    const call = this.callOf(at);
    if (at < this.calls) {
      return this.gpu.names[this.name[at]].name;
    }
    return call < this.recorded.calls ? this.recorded.nameOf(call) : "call";
  }

  kernelOf() {
    return null;
  }

  endOf(at) {
    return this.time[at] + this.duration[at];
  }

  isFailed() {
    return false;
  }

  /** The tracks: calls by thread, then work by stream. */
  tracks() {
    const byThread = new Map();
    for (let at = this.calls; at < this.time.length; at++) {
      const call = this.callOf(at);
      const thread = call < this.recorded.calls ? this.recorded.thread[call] : 0;
      listOf(byThread, thread).push(at);
    }
    const byStream = new Map();
    for (let at = 0; at < this.calls; at++) {
      listOf(byStream, this.stream[at]).push(at);
    }
    const inOrder = (map) => [...map].sort(([a], [b]) => a - b);
    const lane = (places) => new Lane(this, Uint32Array.from(places));
    const devices = new Set(this.gpu.streams.map(({ device }) => device));
    return [
      ...inOrder(byThread).map(
        ([thread, places]) =>
          new CallTrack(this.recorded.threadName(thread), "replayed", lane(places)),
      ),
      ...inOrder(byStream).map(([stream, places]) => {
        const { device, label } = this.gpu.streams[stream];
        const name = devices.size > 1 ? `GPU ${device}: ${label}` : label;
        return new CallTrack(name, `${count(places.length)} ran`, lane(places));
      }),
    ];
  }
}

function listOf(map, key) {
  if (!map.has(key)) {
    map.set(key, []);
  }
  return map.get(key);
}

class GpuTimeline extends Timeline {
  constructor(app) {
    const trace = new GpuTrace(app, app.columns);
    super(app, trace, trace.tracks());
  }

  get overviewLabel() {
    return "All work";
  }

  tipNodes({ call: at }) {
    const { trace } = this;
    const call = trace.callOf(at);
    return [
      element("b", {}, trace.nameOf(at)),
      element("div", {}, duration(trace.duration[at])),
      element(
        "div",
        { class: "dim" },
        call === null ? "the replay’s own work" : `call ${count(call)}`,
      ),
    ];
  }

  detailNodes() {
    const at = this.selection?.call;
    if (at === undefined || at === null) {
      return element(
        "p",
        { class: "dim" },
        "Ctrl and the wheel or + and − zoom, dragging moves, a click shows what ran. Times are " +
          "those of the replay.",
      );
    }
    const { trace } = this;
    const call = trace.callOf(at);
    return [
      element("h2", {}, trace.nameOf(at)),
      facts([
        ["begins", exact(trace, trace.time[at])],
        ["takes", duration(trace.duration[at])],
        ["stream", at < trace.calls ? trace.gpu.streams[trace.stream[at]].label : null],
        [
          at < trace.calls ? "enqueued by" : "recorded as",
          call === null
            ? "the replay itself"
            : call < trace.recorded.calls
              ? [
                  callLink(call, `call ${count(call)} ${trace.recorded.nameOf(call)}`),
                  trace.recorded.about(call) ? `, ${trace.recorded.about(call)}` : null,
                ]
              : `call ${count(call)}`,
        ],
      ]),
    ];
  }

  /** Selects and shows a piece of work or a call. */
  selectCall(at) {
    const { trace } = this;
    const half = Math.max(trace.duration[at] * 6, 1000);
    const middle = (trace.time[at] + trace.endOf(at)) / 2;
    this.select({ call: at });
    this.setView(middle - half, middle + half);
  }

  /** The piece of work or call before and after on the same track. */
  step(direction) {
    const at = this.selection?.call;
    const lanes = this.tracks.map(({ lane }) => lane);
    const lane = lanes.find(({ calls }) => at !== undefined && indexOf(calls, at) >= 0);
    const next = lane ? lane.calls[indexOf(lane.calls, at) + direction] : lanes[0]?.calls[0];
    if (next !== undefined) {
      this.selectCall(next);
    }
  }

  setFilter() {
    this.draw();
  }
}
