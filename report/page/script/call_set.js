// The terms of the filter, each with the calls that it names: the language of docs/calls.md, as
// calls/src/ has it for the verbs. tests/call_sets.json has cases for both.

/** What only other verbs can say. */
const ONLY_ELSEWHERE = new Map([
  ["object", "the objects that calls name"],
  ["memory", "the addresses that calls name"],
  ["stack", "call stacks"],
]);

const PREFIXES = [
  ...["call", "function", "kernel", "range", "mark", "thread", "result", "kind", "stream"],
  ...ONLY_ELSEWHERE.keys(),
];

/** The first numbers that are too large: for a thread or stream, and for a call. */
const [TOO_LARGE_ORDINAL, TOO_LARGE_INDEX] = [1n << 32n, (1n << 64n) - 1n];

/** For each call 1 if it is in the set, else 0. */
function callSet(trace, text) {
  const expression = parseExpression(text, (word) => termOf(trace, word));
  const joined = (parts, join) => {
    const masks = parts.map(evaluate);
    const mask = masks[0];
    for (const other of masks.slice(1)) {
      for (let call = 0; call < mask.length; call++) {
        mask[call] = join(mask[call], other[call]);
      }
    }
    return mask;
  };
  const evaluate = ({ term, not, all, any }) => {
    if (term) {
      return term();
    }
    if (not) {
      return evaluate(not).map((is) => 1 - is);
    }
    return all ? joined(all, (one, other) => one & other) : joined(any, (one, other) => one | other);
  };
  return evaluate(expression);
}

/** A function that makes the calls of a term; fails if the term is wrong. */
function termOf(trace, { text, isQuoted }) {
  if (isQuoted) {
    return textTerm(trace, text);
  }
  const marked = markedTerm(trace, text);
  if (marked) {
    return marked;
  }
  const colon = text.indexOf(":");
  if (colon >= 0) {
    return prefixedTerm(trace, text, text.slice(0, colon), text.slice(colon + 1));
  }
  if (text.includes("..") || /^\d/.test(text)) {
    return numberTerm(trace, text);
  }
  if (/^[<>]/.test(text)) {
    return timeTerm(trace, text);
  }
  if (text === "failed") {
    return () => maskOf(trace, (call) => trace.isFailed(call) || trace.inFlight.has(call));
  }
  return /[*?]|^cu[A-Z]/.test(text) ? functionTerm(trace, text, text) : textTerm(trace, text);
}

function prefixedTerm(trace, text, prefix, value) {
  if (value === "" && PREFIXES.includes(prefix)) {
    const what = prefix === "thread" ? "thread number" : "name";
    throw new FilterError(`\`${text}\`: no ${what} after \`${prefix}:\``);
  }
  const number = (what) => {
    if (!/^\d+$/.test(value)) {
      throw new FilterError(`\`${text}\`: no ${what} number after \`${prefix}:\``);
    }
    return Number(numberBelow(TOO_LARGE_ORDINAL, value));
  };
  switch (prefix) {
    case "call":
      return numberTerm(trace, value);
    case "function":
      return functionTerm(trace, value, text);
    case "kernel": {
      const is = glob(value);
      const names = ({ name, shown, bare }) => is(name) || is(shown) || is(bare);
      return () => kernelMask(trace, names);
    }
    case "result": {
      const is = glob(value);
      const matches = (name) => is(name) || is(name.replace(/^CUDA_ERROR_/, ""));
      const known = trace.facts.results.map(matches);
      const isSuccess = matches("CUDA_SUCCESS");
      const holds = (call) =>
        trace.isFailed(call) ? known[trace.result[call]] : isSuccess && !trace.inFlight.has(call);
      return () => maskOf(trace, holds);
    }
    case "thread": {
      const thread = number("thread");
      return () => maskOf(trace, (call) => trace.thread[call] === thread);
    }
    case "stream": {
      const stream = number("stream");
      return () => listMask(trace, trace.work, (at) => trace.workStream[at] === stream);
    }
    case "kind": {
      const kind = KIND_NUMBER.get(value);
      if (kind === undefined) {
        const kinds = KINDS.map(([key]) => key).join(", ");
        throw new FilterError(`\`${text}\`: no such kind; the kinds are ${kinds}`);
      }
      return () => maskOf(trace, (call) => trace.kind[call] === kind);
    }
    default: {
      const what = ONLY_ELSEWHERE.get(prefix);
      throw new FilterError(
        what
          ? `\`${text}\`: this page does not have ${what}; use \`cutape dump --calls\``
          : `\`${text}\`: no term begins with \`${prefix}:\`; a name with a colon needs quotes`,
      );
    }
  }
}

function functionTerm(trace, pattern, text) {
  const other = /[^A-Za-z0-9_*?]/u.exec(pattern);
  if (other) {
    throw new FilterError(`\`${text}\`: no function name contains '${other[0]}'`);
  }
  const is = glob(pattern);
  const known = trace.facts.functions.map(({ name, base }) => is(name) || is(base));
  return () => maskOf(trace, (call) => known[trace.function[call]]);
}

/** A part of the name of the function, the kernel or the error, in upper or lower case. */
function textTerm(trace, text) {
  if (text === "") {
    throw new FilterError("an empty term");
  }
  const lower = text.toLowerCase();
  const has = (name) => name.toLowerCase().includes(lower);
  const functions = trace.facts.functions.map(({ name }) => has(name));
  const results = trace.facts.results.map(has);
  return () => {
    const mask = kernelMask(trace, ({ name, shown }) => has(name) || has(shown));
    for (let call = 0; call < mask.length; call++) {
      const isFailure = trace.isFailed(call) && results[trace.result[call]];
      mask[call] |= functions[trace.function[call]] || isFailure ? 1 : 0;
    }
    return mask;
  };
}

/** `120`, `100..200`, `100..=200`, `100..`, `..200`. */
function numberTerm(trace, text) {
  const index = (digits) => {
    if (!/^\d+$/.test(digits)) {
      throw new FilterError(`\`${digits}\` is not a call number`);
    }
    return numberBelow(TOO_LARGE_INDEX, digits);
  };
  const dots = text.indexOf("..");
  let [from, to] = [0n, TOO_LARGE_INDEX];
  if (dots < 0) {
    from = index(text);
    to = from + 1n;
  } else {
    const [first, last] = [text.slice(0, dots), text.slice(dots + 2)];
    from = first === "" ? 0n : index(first);
    if (last !== "") {
      to = last.startsWith("=") ? index(last.slice(1)) + 1n : index(last);
    }
    if (from >= to) {
      throw new FilterError(`\`${text}\`: the range is empty`);
    }
  }
  [from, to] = [Number(from), Number(to)];
  return () => maskOf(trace, (call) => from <= call && call < to);
}

function numberBelow(limit, digits) {
  const number = BigInt(digits);
  if (number >= limit) {
    throw new FilterError(`\`${digits}\` is too large`);
  }
  return number;
}

/** `>1.5ms`, `<2us`. */
function timeTerm(trace, text) {
  const [, amount, unit] = /^.(\d+(?:\.\d*)?)(ns|us|µs|ms|s)$/.exec(text) ?? [];
  if (unit === undefined) {
    throw new FilterError(
      `\`${text}\`: give a time with its unit, ns, us, ms or s, e.g. >1.5ms`,
    );
  }
  if (trace.clock !== "ns") {
    throw new FilterError("the trace does not have the times of its calls");
  }
  const bound = Number(amount) * { ns: 1, us: 1e3, µs: 1e3, ms: 1e6, s: 1e9 }[unit];
  const holds = text[0] === ">" ? (time) => time > bound : (time) => time < bound;
  return () => maskOf(trace, (call) => !trace.inFlight.has(call) && holds(trace.duration[call]));
}

/** The term if ranges or marks decide it, else null. */
function markedTerm(trace, text) {
  const { ranges } = trace;
  if (text.startsWith("range:")) {
    const pattern = new MarkedPattern(text.slice(6), "range");
    const all = Array.from(ranges.begin, (_, range) => range);
    const found = pattern.select(all.filter((range) => pattern.isRange(ranges.markerOf(range))));
    return () => {
      const mask = new Uint8Array(trace.calls);
      for (const range of found) {
        const begin = ranges.begin[range];
        const first = lowerBound(trace.time, begin);
        mask.fill(1, first, lowerBound(trace.time, begin + ranges.duration[range], first));
      }
      return mask;
    };
  }
  const bounds = /^(mark:.*?)?\.\.(mark:.*)?$/s.exec(text);
  if (!text.startsWith("mark:") && !bounds?.[2]) {
    return null;
  }
  if (!bounds) {
    throw new FilterError(
      text.includes("..")
        ? `\`${text}\`: a range that begins with a mark ends with a mark`
        : `\`${text}\`: a mark is a moment, which has no calls; write ${text}.. for what follows it`,
    );
  }
  const [begin, end] = markBounds(ranges, bounds[1], bounds[2]);
  return () => maskOf(trace, (call) => begin <= trace.time[call] && trace.time[call] < end);
}

/** The times of the marks around the calls. */
function markBounds(ranges, from, to) {
  const patternOf = (text) => text && new MarkedPattern(text.slice(5), "mark");
  const times = (pattern) => {
    const all = Array.from(ranges.markTime, (_, mark) => mark);
    const found = all.filter((mark) => pattern.isMark(ranges.markNames[ranges.markName[mark]]));
    return pattern.select(found).map((mark) => ranges.markTime[mark]);
  };
  const [first, last] = [patternOf(from), patternOf(to)];
  const begin = first ? times(first)[0] : 0;
  let end = Infinity;
  if (last) {
    const found = times(last);
    end = last.occurrence ? found.at(-1) : found.find((time) => time > begin);
    if (end === undefined) {
      throw new FilterError(`no mark \`${last.text}\` follows the begin`);
    }
  }
  if (begin >= end) {
    throw new FilterError("the second mark does not come after the first");
  }
  return [begin, end];
}

/** Names ranges or marks: `[DOMAIN@]NAME[NUMBER]`. */
class MarkedPattern {
  constructor(text, what) {
    [this.text, this.what] = [text, what];
    const [, before, from, to, minus, number] =
      /^(.*)\[(?:(\d+)\.\.(\d+)|(-?)(\d+))\]$/s.exec(text) ?? [];
    let name = text;
    if (before !== undefined && (from ? Number(from) < Number(to) : !minus || Number(number) > 0)) {
      name = before;
      this.occurrence = from
        ? (length) => [Number(from), Number(to)].map((at) => (Number(to) <= length ? at : NaN))
        : (length) => {
            const at = minus ? length - Number(number) : Number(number);
            return 0 <= at && at < length ? [at, at + 1] : [NaN];
          };
    }
    const at = name.indexOf("@");
    this.isDomain = at < 0 ? () => true : glob(name.slice(0, at));
    this.isName = glob(name.slice(at + 1));
    if (name.slice(at + 1) === "") {
      throw new FilterError(`\`${what}:${text}\`: no name after \`${what}:\``);
    }
  }

  isMark({ name, domain }) {
    return this.isDomain(domain) && this.isName(name);
  }

  /** The name alone, or with names of the ranges around it: `train/step`. */
  isRange({ name, domain, path }) {
    if (!this.isDomain(domain)) {
      return false;
    }
    let begin = path.length - name.length;
    while (!this.isName(path.slice(begin))) {
      if (begin === 0) {
        return false;
      }
      begin = begin < 2 ? 0 : path.lastIndexOf("/", begin - 2) + 1;
    }
    return true;
  }

  /** Those of the found ones that the occurrence names. */
  select(found) {
    const { text, what } = this;
    if (found.length === 0) {
      throw new FilterError(`no ${what} \`${text}\``);
    }
    if (!this.occurrence) {
      return found;
    }
    const [from, to] = this.occurrence(found.length);
    if (Number.isNaN(from)) {
      const many = counted(found.length, `such ${what}`);
      throw new FilterError(`\`${text}\`: the trace has ${many}, numbered from 0`);
    }
    return found.slice(from, to);
  }
}

function maskOf(trace, holds) {
  const mask = new Uint8Array(trace.calls);
  for (let call = 0; call < mask.length; call++) {
    mask[call] = holds(call) ? 1 : 0;
  }
  return mask;
}

/** The calls of a list of calls; `holds` takes the place in the list. */
function listMask(trace, calls, holds) {
  const mask = new Uint8Array(trace.calls);
  for (let at = 0; at < calls.length; at++) {
    mask[calls[at]] |= holds(at) ? 1 : 0;
  }
  return mask;
}

/** Launches of the named kernels for which `matches` holds, which is asked once for each. */
function kernelMask(trace, matches) {
  const known = trace.facts.kernels.map((kernel) => kernel.name != null && matches(kernel));
  return listMask(trace, trace.launches, (at) => known[trace.launchKernel[at]]);
}

/** A test for whole names: `*` stands for any characters, `?` for one byte. */
function glob(pattern) {
  if (!/[*?]/.test(pattern)) {
    return (name) => name === pattern;
  }
  const encoder = new TextEncoder();
  const wanted = encoder.encode(pattern);
  return (name) => matchesGlob(wanted, encoder.encode(name));
}

/** As analyzer/src/glob.rs: a regular expression may take exponential time. */
function matchesGlob(pattern, text) {
  const [star, mark] = [..."*?"].map((character) => character.charCodeAt(0));
  let [next, at] = [0, 0];
  // What to try when the last `*` has to take one more byte.
  let retry = null;
  while (at < text.length) {
    if (pattern[next] === star) {
      next += 1;
      retry = [next, at];
    } else if (pattern[next] === mark || pattern[next] === text[at]) {
      next += 1;
      at += 1;
    } else if (retry) {
      retry[1] += 1;
      [next, at] = retry;
    } else {
      return false;
    }
  }
  return pattern.subarray(next).every((byte) => byte === star);
}
