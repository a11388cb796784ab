// The filter: which calls are shown.

/** The language, for the page of help; docs/calls.md describes it. */
const FILTER_WORDS = [
  ["saxpy", "function, kernel or error that contains the text"],
  ["cuMem*", "function; * stands for any characters, ? for one"],
  ["kernel:saxpy*", "launches of a kernel; also result:"],
  ["kind:copy", `what the call does: ${KINDS.map(([key]) => key).join(", ")}`],
  ["thread:1", "calls of a thread"],
  ["stream:2", "work of a stream, by its number on the timeline"],
  ["range:step*", "calls during ranges of that name; also train/step, step[0]"],
  ["mark:A..mark:B", "calls between marks"],
  ["100..200", "calls by index: also 120, 100..=200, 100.., ..200"],
  [">1ms, <2s", "calls that take longer or shorter: ns, us, ms, s"],
  ["failed", "calls that returned an error or did not return"],
  ["A B, A and B", "calls that are in both"],
  ["A, B, A or B", "calls that are in one of them"],
  ["-A, not A", "the other calls"],
  ['( ), "step 0"', "parentheses; quotes for names with spaces and commas"],
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
    this.mask = null;
    this.matching = this.trace.calls;
    if (withoutBlanks(text) === "") {
      return;
    }
    try {
      this.mask = callSet(this.trace, text);
      this.matching = this.mask.reduce((sum, is) => sum + is, 0);
    } catch (error) {
      if (!(error instanceof FilterError)) {
        throw error;
      }
      this.error = error.message;
    }
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
}
