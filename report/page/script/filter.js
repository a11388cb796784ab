// The filter: words that a call must all match.

const FILTER_WORDS = [
  ["saxpy", "function, kernel or result that contains the text; * stands for any characters"],
  ["function:cuMem*", "only the function; also kernel: and result:"],
  ["kind:copy", `what the call does: ${KINDS.map(([key]) => key).join(", ")}`],
  ["thread:1", "calls of a thread"],
  ["stream:2", "work of a stream, by its number on the timeline"],
  ["range:step*", "calls during ranges of that name"],
  ["100..200", "calls by index, as in call sets: also 120, 100..=200, 100.., ..200"],
  [">1ms <2s", "calls that take longer or shorter: ns, us, ms, s"],
  ["failed", "calls that returned an error or did not return"],
  ["-kind:other", "not what follows the minus sign"],
];

class Filter {
  constructor(trace) {
    this.trace = trace;
    this.text = "";
    this.error = null;
    /** 1 for each call that matches; null if there is no filter. */
    this.mask = null;
    this.matching = trace.calls;
    this.list = null;
  }

  get isActive() {
    return this.mask !== null;
  }

  set(text) {
    this.text = text;
    this.error = null;
    this.list = null;
    const words = text.trim().split(/\s+/).filter(Boolean);
    if (words.length === 0) {
      this.mask = null;
      this.matching = this.trace.calls;
      return;
    }
    const mask = new Uint8Array(this.trace.calls).fill(1);
    try {
      for (const word of words) {
        this.#apply(word, mask);
      }
    } catch (error) {
      if (!(error instanceof FilterError)) {
        throw error;
      }
      this.error = error.message;
      mask.fill(1);
    }
    let matching = 0;
    for (let call = 0; call < mask.length; call++) {
      matching += mask[call];
    }
    this.mask = this.error ? null : mask;
    this.matching = matching;
  }

  has(call) {
    return this.mask === null || this.mask[call] === 1;
  }

  /** The calls that match, in order. */
  calls() {
    if (this.mask === null) {
      return null;
    }
    if (!this.list) {
      this.list = new Uint32Array(this.matching);
      let at = 0;
      for (let call = 0; call < this.mask.length; call++) {
        if (this.mask[call]) {
          this.list[at++] = call;
        }
      }
    }
    return this.list;
  }

  /** The next matching call in a direction; null behind the last. */
  next(from, direction) {
    for (let call = from + direction; call >= 0 && call < this.trace.calls; call += direction) {
      if (this.has(call)) {
        return call;
      }
    }
    return null;
  }

  #apply(word, mask) {
    const negated = word.startsWith("-") && word.length > 1;
    const matches = this.#matches(negated ? word.slice(1) : word);
    const unwanted = negated ? 1 : 0;
    for (let call = 0; call < mask.length; call++) {
      mask[call] &= matches[call] ^ unwanted;
    }
  }

  /** For each call 1 if it matches a word, else 0. */
  #matches(word) {
    const { trace } = this;
    const { calls } = trace;
    const limit = /^([<>])(\d+(?:\.\d+)?)(ns|us|µs|ms|s)?$/.exec(word);
    if (limit) {
      const scale = { ns: 1, us: 1e3, µs: 1e3, ms: 1e6, s: 1e9 }[limit[3] ?? "ns"];
      const bound = Number(limit[2]) * scale;
      const isLonger = limit[1] === ">";
      const marked = new Uint8Array(calls);
      for (let call = 0; call < calls; call++) {
        const time = trace.duration[call];
        marked[call] = (isLonger ? time > bound : time < bound) ? 1 : 0;
      }
      return marked;
    }
    if (word === "failed") {
      const marked = new Uint8Array(calls);
      for (let call = 0; call < calls; call++) {
        marked[call] = trace.result[call] !== NONE ? 1 : 0;
      }
      trace.inFlight.forEach((call) => (marked[call] = 1));
      return marked;
    }
    const indices = /^(?:call:)?(\d*)(\.\.=?)?(\d*)$/.exec(word);
    if (indices && indices[0] !== "..") {
      return this.#inRange(...indices.slice(1));
    }
    const [, key, value] = /^([a-z]+):(.+)$/.exec(word) ?? [];
    switch (key) {
      case "thread": {
        const thread = number(value, word);
        return equal(trace.thread, thread);
      }
      case "stream":
        return this.#onStream(number(value, word));
      case "kind": {
        const kind = KIND_NUMBER.get(value);
        if (kind === undefined) {
          throw new FilterError(`no kind ${value}; use ${KINDS.map(([k]) => k).join(", ")}`);
        }
        return equal(trace.kind, kind);
      }
      case "range":
        return this.#duringRange(pattern(value));
      case "function":
        return this.#named(pattern(value), null, null);
      case "kernel":
        return this.#named(null, pattern(value), null);
      case "result":
        return this.#named(null, null, pattern(value));
      default: {
        const text = pattern(word);
        return this.#named(text, text, text);
      }
    }
  }

  #named(ofFunction, ofKernel, ofResult) {
    const { trace } = this;
    const { functions, kernels, results } = trace.facts;
    // Names are compared once each, not once a call.
    const matches = (list, name, test) =>
      Uint8Array.from(list, (entry) => (test !== null && test(name(entry)) ? 1 : 0));
    const functionMatches = matches(functions, ({ name }) => name, ofFunction);
    const kernelMatches = matches(
      kernels,
      ({ shown, name }) => `${shown}\n${name ?? ""}`,
      ofKernel,
    );
    const resultMatches = matches(results, (name) => name, ofResult);
    const functionOf = trace.function;
    const marked = new Uint8Array(trace.calls);
    for (let call = 0; call < marked.length; call++) {
      marked[call] = functionMatches[functionOf[call]];
    }
    if (kernelMatches.includes(1)) {
      for (let at = 0; at < trace.launches.length; at++) {
        marked[trace.launches[at]] |= kernelMatches[trace.launchKernel[at]];
      }
    }
    if (resultMatches.includes(1)) {
      for (const call of trace.failed) {
        marked[call] |= resultMatches[trace.result[call]];
      }
    }
    return marked;
  }

  /** Calls `first..last`, without the last, `first..=last`, or the one call `first`. */
  #inRange(first, dots, last) {
    const { calls } = this.trace;
    const from = Math.min(calls, Number(first || 0));
    let to = from + 1;
    if (dots) {
      to = last === "" ? calls : Number(last) + (dots === "..=" ? 1 : 0);
    }
    return new Uint8Array(calls).fill(1, from, Math.max(from, Math.min(calls, to)));
  }

  #onStream(stream) {
    const { trace } = this;
    const marked = new Uint8Array(trace.calls);
    for (let at = 0; at < trace.work.length; at++) {
      if (trace.workStream[at] === stream) {
        marked[trace.work[at]] = 1;
      }
    }
    return marked;
  }

  #duringRange(test) {
    const { trace } = this;
    const marked = new Uint8Array(trace.calls);
    const { ranges } = trace;
    for (let range = 0; range < ranges.begin.length; range++) {
      if (test(ranges.nameOf(range))) {
        const first = lowerBound(trace.time, ranges.begin[range]);
        marked.fill(1, first, lowerBound(trace.time, ranges.endOf(range), first));
      }
    }
    return marked;
  }
}

/** For each value 1 if it is the wanted one, else 0. */
function equal(values, wanted) {
  const marked = new Uint8Array(values.length);
  for (let at = 0; at < values.length; at++) {
    marked[at] = values[at] === wanted ? 1 : 0;
  }
  return marked;
}

class FilterError extends Error {}

function number(text, word) {
  if (!/^\d+$/.test(text)) {
    throw new FilterError(`${word}: not a number`);
  }
  return Number(text);
}

/** A test for names: contains the text, without regard to case; with * the whole name. */
function pattern(text) {
  const lower = text.toLowerCase();
  if (!lower.includes("*")) {
    return (name) => name.toLowerCase().includes(lower);
  }
  const pieces = lower.split("*").map((piece) => piece.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const expression = new RegExp(`^${pieces.join(".*")}$`, "ms");
  return (name) =>
    name
      .toLowerCase()
      .split("\n")
      .some((line) => expression.test(line));
}
