// The rows of the timeline. Each draws itself and says which call is at a point.

const FONT = "12px system-ui, sans-serif";
const FONT_SMALL = "11px ui-monospace, 'DejaVu Sans Mono', monospace";
const RANGE_COLOURS = 5;

/** What part of the time is shown, and how moments map to pixels. */
class View {
  constructor(from, to, width) {
    this.from = from;
    this.to = to;
    this.width = width;
    this.timeOfPixel = (to - from) / width;
  }

  x(moment) {
    return (moment - this.from) / this.timeOfPixel;
  }

  moment(x) {
    return this.from + x * this.timeOfPixel;
  }
}

/** Intervals that do not overlap, in order; those narrower than a pixel are drawn once a pixel. */
class Intervals {
  constructor(begins, ends, source) {
    this.begins = begins;
    this.ends = ends;
    this.source = source;
  }

  /** Calls `visit(place, left, right)` for what is visible. */
  visit(view, visit) {
    const { begins, ends } = this;
    let at = Math.max(0, lowerBound(begins, view.from) - 1);
    while (at < begins.length && begins[at] < view.to) {
      if (ends[at] > view.from) {
        visit(at, view.x(begins[at]), view.x(ends[at]));
      }
      const drawn = begins[at] + view.timeOfPixel;
      at = ends[at] < drawn ? Math.max(at + 1, lowerBound(begins, drawn, at)) : at + 1;
    }
  }

  at(moment) {
    const place = lowerBound(this.begins, moment) - 1;
    return place >= 0 && this.ends[place] >= moment ? place : null;
  }
}

class CallTrack {
  constructor(label, note, lane) {
    this.label = label;
    this.note = note;
    this.lane = lane;
    this.height = 26;
  }

  draw(context, view, box, colours) {
    this.lane.draw(context, view, inset(box, 3), colours);
  }

  hit(view, moment) {
    const call = this.lane.callAt(moment, 3 * view.timeOfPixel);
    return call === null ? null : { call };
  }
}

/** The work of a stream: when calls enqueued it, and until when it was not known to be complete. */
class StreamTrack extends CallTrack {
  constructor(trace, label, note, places) {
    const calls = Uint32Array.from(places, (place) => trace.work[place]);
    super(label, note, new Lane(trace, calls));
    this.height = 30;
    this.pending = pendingIntervals(trace, places);
  }

  draw(context, view, box, colours) {
    context.fillStyle = colours.inFlight;
    this.pending.visit(view, (_, left, right) => {
      const x = Math.max(left, 0);
      const width = Math.max(1, Math.min(right, box.width) - x);
      context.fillRect(box.left + x, box.top + 2, width, box.height - 4);
    });
    this.lane.draw(context, view, inset(box, 6), colours);
  }

  hit(view, moment) {
    const hit = super.hit(view, moment);
    if (hit) {
      return hit;
    }
    const place = this.pending.at(moment);
    return place === null
      ? null
      : { text: "Work is enqueued that no wait has shown to be complete yet" };
  }
}

function pendingIntervals(trace, places) {
  const [begins, ends] = [[], []];
  for (const place of places) {
    const call = trace.work[place];
    const done = trace.workDone[place];
    if (!PENDING_KINDS.has(trace.kindKey(call)) || trace.isFailed(call)) {
      continue;
    }
    const begin = trace.time[call];
    const end = done === 0 ? trace.end : trace.endOf(call + done - 1);
    const last = ends.length - 1;
    if (last >= 0 && begin <= ends[last]) {
      ends[last] = Math.max(ends[last], end);
    } else {
      begins.push(begin);
      ends.push(end);
    }
  }
  return new Intervals(Float64Array.from(begins), Float64Array.from(ends), null);
}

const PENDING_KINDS = new Set(["launch", "copy", "fill"]);

/** Ranges of one thread, those inside of others below them. */
class RangeTrack {
  constructor(trace, label, rows) {
    this.trace = trace;
    this.label = label;
    this.note = "ranges";
    this.rows = rows;
    this.rowHeight = 18;
    this.height = rows.length * this.rowHeight + 4;
  }

  draw(context, view, box, colours) {
    const { ranges } = this.trace;
    context.font = FONT_SMALL;
    this.rows.forEach((row, number) => {
      const top = box.top + 2 + number * this.rowHeight;
      row.visit(view, (at, left, right) => {
        const range = row.source[at];
        const x = Math.max(left, 0);
        const width = Math.max(1, Math.min(right, box.width) - x);
        context.fillStyle = colours.ranges[ranges.name[range] % RANGE_COLOURS];
        context.fillRect(box.left + x, top, Math.max(1, width - 0.5), this.rowHeight - 2);
        if (width > 30) {
          const shown = fitted(context, ranges.nameOf(range), width - 8, 0);
          context.fillStyle = colours.text;
          context.fillText(shown, box.left + x + 4, top + this.rowHeight / 2 - 0.5);
        }
      });
    });
  }

  hit(view, moment, y) {
    const row = this.rows[Math.floor((y - 2) / this.rowHeight)];
    const at = row?.at(moment) ?? null;
    return at === null ? null : { range: row.source[at] };
  }
}

/** Moments: findings, or marks of the program. */
class MomentTrack {
  /** `moments` ascend by `time`; each has a `colour` key and a `hit`. */
  constructor(label, note, moments) {
    this.label = label;
    this.note = note;
    this.moments = moments;
    this.times = Float64Array.from(moments, ({ time }) => time);
    this.height = 22;
  }

  draw(context, view, box, colours) {
    let at = lowerBound(this.times, view.from - 6 * view.timeOfPixel);
    const middle = box.top + box.height / 2;
    while (at < this.times.length && this.times[at] <= view.to + 6 * view.timeOfPixel) {
      const x = box.left + Math.max(5, Math.min(view.x(this.times[at]), box.width - 5));
      context.fillStyle = colours[this.moments[at].colour];
      context.beginPath();
      context.moveTo(x, middle - 6);
      context.lineTo(x + 5, middle);
      context.lineTo(x, middle + 6);
      context.lineTo(x - 5, middle);
      context.fill();
      // One for each pixel is enough.
      at = Math.max(at + 1, lowerBound(this.times, this.times[at] + view.timeOfPixel, at));
    }
  }

  hit(view, moment) {
    const slack = 7 * view.timeOfPixel;
    const near = lowerBound(this.times, moment - slack);
    let best = null;
    for (let at = near; at < this.times.length && this.times[at] <= moment + slack; at++) {
      const away = Math.abs(this.times[at] - moment);
      if (best === null || away < Math.abs(this.times[best] - moment)) {
        best = at;
      }
    }
    return best === null ? null : this.moments[best].hit;
  }
}

/** The life of one object of the finding that is shown. */
class LifeTrack {
  constructor(trace, life) {
    this.trace = trace;
    this.life = life;
    this.label = life.label;
    this.note = "life of the object";
    this.height = 24;
  }

  draw(context, view, box, colours) {
    const { trace, life } = this;
    const from = life.created === null ? 0 : trace.time[life.created];
    const to = life.ended === null ? trace.end : trace.endOf(life.ended);
    const left = Math.max(0, view.x(from));
    const right = Math.min(box.width, view.x(to));
    if (right < 0 || left > box.width) {
      return;
    }
    context.fillStyle = colours.life;
    context.fillRect(box.left + left, box.top + 5, Math.max(2, right - left), box.height - 10);
    context.fillStyle = colours.text;
    context.font = FONT_SMALL;
    if (right - left > 40) {
      const words = fitted(context, life.words, right - left - 10);
      context.fillText(words, box.left + left + 5, box.top + box.height / 2 + 0.5);
    }
    if (life.ended !== null && view.x(to) <= box.width) {
      context.fillStyle = colours.error;
      context.fillRect(box.left + right - 2, box.top + 3, 2, box.height - 6);
    }
  }

  hit(view, moment) {
    const { trace, life } = this;
    const near = (call) =>
      call !== null && Math.abs(trace.time[call] - moment) < 8 * view.timeOfPixel;
    return near(life.ended)
      ? { call: life.ended }
      : life.created === null
        ? null
        : { call: life.created };
  }
}

class MemoryTrack {
  constructor(series) {
    this.series = series;
    this.label = "Memory";
    this.note = `at most ${bytes(series.peak.bytes)}`;
    this.height = 54;
  }

  draw(context, view, box, colours) {
    const most = this.series.peak.bytes || 1;
    this.series.draw(context, view, inset(box, 3), colours, most);
  }

  hit(view, moment) {
    const step = this.series.stepAt(moment);
    if (step < 0) {
      return null;
    }
    const amounts = this.series.used.map(
      ({ kind, name }) => `${name}: ${bytes(this.series.amounts[kind][step])}`,
    );
    return { text: amounts.join(", "), call: this.series.call[step], isMemory: true };
  }
}

function inset(box, by) {
  return { ...box, top: box.top + by, height: box.height - 2 * by };
}

/** All rows of a trace, from the top. */
function tracksOf(trace, series, findings) {
  const tracks = [];
  if (findings.length > 0) {
    tracks.push(new MomentTrack("Findings", null, findings));
  }
  const divergences = divergenceMoments(trace);
  if (divergences.length > 0) {
    tracks.push(new MomentTrack("Divergences", "of the replay", divergences));
  }
  const { ranges } = trace;
  if (ranges.markTime.length > 0) {
    const marks = Array.from(ranges.markTime, (time, mark) => ({
      time,
      colour: "accent",
      hit: { mark },
    }));
    tracks.push(new MomentTrack("Marks", null, marks));
  }
  const outside = rangeRows(ranges, -1);
  if (outside.length > 0) {
    tracks.push(new RangeTrack(trace, "Process", outside));
  }
  const callsOfThreads = grouped(trace.thread, trace.facts.summary.threads.length);
  callsOfThreads.forEach((calls, thread) => {
    const label = `Thread ${thread}`;
    const { name, number } = trace.facts.summary.threads[thread];
    const note = [name, number ? `(${number})` : ""].join(" ").trim();
    const rows = rangeRows(ranges, thread);
    if (rows.length > 0) {
      tracks.push(new RangeTrack(trace, label, rows));
    }
    if (calls.length > 0) {
      tracks.push(new CallTrack(label, note, new Lane(trace, calls)));
    }
  });
  grouped(trace.workStream, trace.facts.streams.length).forEach((places, stream) => {
    if (places.length > 0) {
      const { label } = trace.facts.streams[stream];
      const note = `${label}, ${counted(places.length, "call")}`;
      tracks.push(new StreamTrack(trace, `Stream ${stream}`, note, places));
    }
  });
  if (!series.isEmpty) {
    tracks.push(new MemoryTrack(series));
  }
  return tracks;
}

/** The calls that a replay's report lists as diverging. */
function divergenceMoments(trace) {
  const divergences = trace.facts.replay?.divergences ?? [];
  const calls = divergences.map(({ call }) => call).filter((call) => call < trace.calls);
  calls.sort((a, b) => a - b);
  return calls.map((call) => ({ time: trace.time[call], colour: "error", hit: { call } }));
}

/** For each group the positions of its members. */
function grouped(groups, count) {
  const sizes = new Uint32Array(count);
  for (let at = 0; at < groups.length; at++) {
    sizes[groups[at]] += 1;
  }
  const lists = Array.from(sizes, (size) => new Uint32Array(size));
  sizes.fill(0);
  for (let at = 0; at < groups.length; at++) {
    lists[groups[at]][sizes[groups[at]]++] = at;
  }
  return lists;
}

function rangeRows(ranges, thread) {
  const rows = [];
  for (let range = 0; range < ranges.begin.length; range++) {
    if (ranges.thread[range] === thread + 1) {
      (rows[ranges.row[range]] ??= []).push(range);
    }
  }
  return Array.from(rows, (row = []) => {
    const begins = Float64Array.from(row, (range) => ranges.begin[range]);
    const ends = Float64Array.from(row, (range) => ranges.endOf(range));
    return new Intervals(begins, ends, row);
  });
}
