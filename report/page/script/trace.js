// The trace: columns of calls, launches, copies, work, objects and ranges, and what joins them.

const KINDS = [
  ["launch", "launch"],
  ["copy", "copy"],
  ["fill", "fill"],
  ["wait", "wait"],
  ["order", "event, stream order"],
  ["memory", "memory"],
  ["code", "module, library, link"],
  ["other", "other"],
];
const KIND_NUMBER = new Map(KINDS.map(([key], number) => [key, number]));
/** Calls that the filter leaves out. */
const DIMMED = KINDS.length;

const NONE = 0xffffffff;

class Trace {
  constructor(facts, columns) {
    this.facts = facts;
    this.clock = facts.clock;
    this.calls = columns.get("call.time").length;
    this.time = columns.get("call.time");
    this.duration = columns.get("call.duration");
    this.thread = columns.get("call.thread");
    this.function = columns.get("call.function");
    this.end = facts.end;

    this.kindOfFunction = Uint8Array.from(
      facts.functions,
      ({ kind }) => KIND_NUMBER.get(kind) ?? KIND_NUMBER.get("other"),
    );
    this.#readKinds();
    this.failed = columns.get("failed.call");
    this.result = scattered(this.calls, this.failed, columns.get("failed.result"));
    this.inFlight = new Set(columns.get("in_flight.call"));
    this.kernel = scattered(this.calls, columns.get("launch.call"), columns.get("launch.kernel"));
    this.launches = columns.get("launch.call");
    this.launchKernel = columns.get("launch.kernel");
    this.launchShape = columns.get("launch.shape");
    this.graphLaunches = columns.get("graph.call");
    this.graphKernels = columns.get("graph.kernels");
    this.copies = columns.get("copy.call");
    this.copyBytes = columns.get("copy.bytes");
    this.copyDirection = columns.get("copy.direction");
    this.work = columns.get("work.call");
    this.workStream = columns.get("work.stream");
    this.workDone = columns.get("work.done");
    this.objects = new ObjectTable(this, columns);
    this.ranges = new RangeTable(this, columns);
  }

  #readKinds() {
    const { calls, kindOfFunction } = this;
    const functions = this.function;
    /** As what the timeline shows each call: its kind, or dimmed. */
    this.kind = new Uint8Array(calls);
    for (let call = 0; call < calls; call++) {
      this.kind[call] = kindOfFunction[functions[call]];
    }
    this.shownKind = this.kind;
  }

  /** Calls that a filter leaves out are dimmed; null if there is no filter. */
  dim(mask) {
    const { kind } = this;
    if (mask === null) {
      this.shownKind = kind;
      return;
    }
    const shown = new Uint8Array(kind.length);
    for (let call = 0; call < kind.length; call++) {
      shown[call] = mask[call] ? kind[call] : DIMMED;
    }
    this.shownKind = shown;
  }

  kindOf(call) {
    return this.kind[call];
  }

  kindKey(call) {
    return KINDS[this.kindOf(call)][0];
  }

  nameOf(call) {
    return this.facts.functions[this.function[call]].name;
  }

  /** The end of a call; of one in flight, of the trace. */
  endOf(call) {
    return this.inFlight.has(call) ? this.end : this.time[call] + this.duration[call];
  }

  kernelOf(call) {
    const kernel = this.kernel[call];
    return kernel === NONE ? null : this.facts.kernels[kernel];
  }

  threadName(ordinal) {
    const thread = this.facts.summary.threads[ordinal];
    const name = thread?.name ? ` ${thread.name}` : "";
    const number = thread?.number ? ` (${thread.number})` : "";
    return `Thread ${ordinal}${name}${number}`;
  }

  resultText(call) {
    if (this.inFlight.has(call)) {
      return "did not return";
    }
    const result = this.result[call];
    return result === NONE ? "success" : this.facts.results[result];
  }

  isFailed(call) {
    return this.result[call] !== NONE;
  }

  /** Shape of a launch: { grid, block, shared }, or null. */
  shapeOf(call) {
    const at = this.kernel[call] === NONE ? -1 : indexOf(this.launches, call);
    return at < 0 ? null : this.facts.shapes[this.launchShape[at]];
  }

  /** How many kernels the launch of a graph runs; null if the trace does not show it. */
  graphKernelsOf(call) {
    const at = indexOf(this.graphLaunches, call);
    return at < 0
      ? null
      : this.facts.graph_kernels[this.graphKernels[at]].reduce((sum, [, , runs]) => sum + runs, 0);
  }

  copyOf(call) {
    const at = indexOf(this.copies, call);
    return at < 0
      ? null
      : { bytes: this.copyBytes[at], direction: this.facts.directions[this.copyDirection[at]] };
  }

  /** The stream of a call's work, and the call that proves the work complete. */
  workOf(call) {
    const at = indexOf(this.work, call);
    if (at < 0) {
      return null;
    }
    const done = this.workDone[at];
    return { stream: this.workStream[at], done: done === 0 ? null : call + done - 1 };
  }

  /** What a call is about, in a few words. */
  about(call) {
    const kernel = this.kernelOf(call);
    if (kernel) {
      const shape = this.shapeOf(call);
      const grid = shape?.grid ? ` [${dimensions(shape.grid)}, ${dimensions(shape.block)}]` : "";
      return kernel.shown + grid;
    }
    const nodes = this.graphKernelsOf(call);
    if (nodes !== null) {
      return `a graph of ${counted(nodes, "kernel")}`;
    }
    const copy = this.copyOf(call);
    if (copy) {
      return `${bytes(copy.bytes)} ${copy.direction}`;
    }
    const object = this.objects.createdBy(call) ?? this.objects.endedBy(call);
    return object === null ? "" : this.objects.describe(object);
  }
}

/** For each call the value that a column gives it, else NONE. */
function scattered(length, calls, values) {
  const all = new Uint32Array(length).fill(NONE);
  for (let at = 0; at < calls.length; at++) {
    all[calls[at]] = values[at];
  }
  return all;
}

/** The first place whose value is not below; the values ascend. */
function lowerBound(values, value, from = 0, to = values.length) {
  let [low, high] = [from, to];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (values[middle] < value) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

function indexOf(values, value) {
  const at = lowerBound(values, value);
  return values[at] === value ? at : -1;
}

/** Objects that the program created: memory, modules, streams and so on. */
class ObjectTable {
  constructor(trace, columns) {
    this.trace = trace;
    this.kinds = trace.facts.object_kinds;
    this.kind = columns.get("object.kind");
    this.created = columns.get("object.created");
    this.ended = columns.get("object.ended");
    this.origin = columns.get("object.origin");
    this.bytes = columns.get("object.bytes");
    this.handleLow = columns.get("object.handle_low");
    this.handleHigh = columns.get("object.handle_high");
    this.#sortByEnd();
  }

  get length() {
    return this.kind.length;
  }

  /** The objects that ended, in the order of the calls that ended them, and those calls. */
  #sortByEnd() {
    const keys = [];
    for (let object = 0; object < this.length; object++) {
      if (this.ended[object] !== 0) {
        // Numbers sort faster than a comparison of two objects.
        keys.push(this.endOf(object) * this.length + object);
      }
    }
    const sorted = Float64Array.from(keys).sort();
    this.byEnd = Uint32Array.from(sorted, (key) => key % this.length);
    this.ends = Uint32Array.from(sorted, (key) => Math.floor(key / this.length));
  }

  /** Whether the program created it and never destroyed it. */
  isLeaked(object) {
    return this.origin[object] === 0 && this.ended[object] === 0;
  }

  /** The call that ended an object; null if none did. */
  endOf(object) {
    const after = this.ended[object];
    return after === 0 ? null : this.created[object] + after - 1;
  }

  handle(object) {
    const high = this.handleHigh[object];
    const low = this.handleLow[object].toString(16);
    return high ? `0x${high.toString(16)}${low.padStart(8, "0")}` : `0x${low}`;
  }

  name(object) {
    return this.kinds[this.kind[object]].name;
  }

  /** Which kind of memory it is; null if it is none. */
  memoryOf(object) {
    return this.kinds[this.kind[object]].memory;
  }

  describe(object) {
    const size = this.bytes[object] ? `, ${bytes(this.bytes[object])}` : "";
    return `${this.name(object)} ${this.handle(object)}${size}`;
  }

  createdBy(call) {
    const at = indexOf(this.created, call);
    return at < 0 ? null : at;
  }

  endedBy(call) {
    const at = indexOf(this.ends, call);
    return at < 0 ? null : this.byEnd[at];
  }
}

/** Ranges and marks of NVTX. */
class RangeTable {
  constructor(trace, columns) {
    this.trace = trace;
    this.begin = columns.get("range.begin");
    this.duration = columns.get("range.duration");
    this.thread = columns.get("range.thread");
    this.name = columns.get("range.name");
    this.row = columns.get("range.row");
    this.names = trace.facts.range_names;
    this.markTime = columns.get("mark.time");
    this.markThread = columns.get("mark.thread");
    this.markName = columns.get("mark.name");
    this.markNames = trace.facts.mark_names;
  }

  nameOf(range) {
    return this.markerOf(range).name;
  }

  /** Its name, its domain, and its path: the names of the ranges around it and its own. */
  markerOf(range) {
    return this.names[this.name[range]];
  }

  nameOfMark(mark) {
    return this.markNames[this.markName[mark]].name;
  }

  /** One that did not end, ends with the trace. */
  endOf(range) {
    return Math.min(
      this.begin[range] + this.duration[range],
      Math.max(this.trace.end, this.begin[range]),
    );
  }
}
