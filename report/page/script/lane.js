// Calls of one track, at every zoom. Where calls are narrower than a pixel, a column of pixels
// shows the share of its time that each kind of call takes; sums of blocks make that cheap.

const BLOCK = 64;

function numbersTo(count) {
  const numbers = new Uint32Array(count);
  for (let at = 0; at < count; at++) {
    numbers[at] = at;
  }
  return numbers;
}

class Lane {
  /** `calls` ascend; those of one lane overlap little or not at all. */
  constructor(trace, calls) {
    this.trace = trace;
    this.calls = calls;
    this.before = null;
    this.longest = null;
  }

  get length() {
    return this.calls.length;
  }

  /** The kinds of calls have changed: another filter holds. */
  filterChanged() {
    this.before = null;
  }

  kindAt(at) {
    return this.trace.shownKind[this.calls[at]];
  }

  /** Sums the blocks when the lane is first drawn, and after the filter has changed. */
  #sum() {
    const { calls } = this;
    const { duration, shownKind } = this.trace;
    const kinds = KINDS.length + 1;
    const blocks = Math.ceil(calls.length / BLOCK);
    /** Time of each kind before each block. */
    const before = new Float64Array((blocks + 1) * kinds);
    const longest = new Float64Array(blocks);
    const sums = new Float64Array(kinds);
    for (let block = 0; block < blocks; block++) {
      const end = Math.min(calls.length, (block + 1) * BLOCK);
      let most = 0;
      for (let at = block * BLOCK; at < end; at++) {
        const call = calls[at];
        const time = duration[call];
        sums[shownKind[call]] += time;
        if (time > most) {
          most = time;
        }
      }
      longest[block] = most;
      before.set(sums, (block + 1) * kinds);
    }
    this.before = before;
    this.longest = longest;
  }

  /** The first place, not before `from`, whose call begins at or after a moment. */
  placeAt(moment, from = 0) {
    const { time } = this.trace;
    const { length } = this.calls;
    // The place is likely near: look in ever larger steps before halving.
    let [low, high, step] = [from, from, BLOCK];
    while (high < length && time[this.calls[high]] < moment) {
      low = high + 1;
      high = from === 0 ? length : Math.min(length, high + step);
      step *= 4;
    }
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (time[this.calls[middle]] < moment) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  /** Time of each kind of the calls at places [from, to), added to `sums`. */
  addTimes(from, to, sums) {
    const kinds = KINDS.length + 1;
    const firstBlock = Math.ceil(from / BLOCK);
    const lastBlock = Math.floor(to / BLOCK);
    if (firstBlock >= lastBlock) {
      this.#addEach(from, to, sums);
      return;
    }
    this.#addEach(from, firstBlock * BLOCK, sums);
    for (let kind = 0; kind < kinds; kind++) {
      const span = this.before[lastBlock * kinds + kind] - this.before[firstBlock * kinds + kind];
      sums[kind] += span;
    }
    this.#addEach(lastBlock * BLOCK, to, sums);
  }

  #addEach(from, to, sums) {
    const { duration } = this.trace;
    for (let at = from; at < to; at++) {
      sums[this.kindAt(at)] += duration[this.calls[at]];
    }
  }

  /**
   * Draws the lane: `view` maps moments to pixels, `box` is where, `colours` has one for each kind.
   */
  draw(context, view, box, colours) {
    const pixel = view.timeOfPixel;
    const first = Math.max(0, this.#reaching(view.from));
    const last = this.placeAt(view.to);
    if (last - first <= 2 * box.width) {
      this.#drawEach(context, view, box, colours, first, last);
      return;
    }
    if (!this.before) {
      this.#sum();
    }
    const sums = new Float64Array(KINDS.length + 1);
    let place = this.placeAt(view.from);
    PAINTER.begin(box.width, box.height);
    for (let x = 0; x < box.width && place < last; x++) {
      const next = this.placeAt(view.from + (x + 1) * pixel, place);
      if (next > place) {
        sums.fill(0);
        this.addTimes(place, next, sums);
        paintColumn(x, sums, pixel, colours.kindPixels);
      }
      place = next;
    }
    PAINTER.end(context, box.left, box.top);
    this.#drawLong(context, view, box, colours, first, last);
  }

  /** The first place whose call reaches the moment; a lane's calls do not overlap much. */
  #reaching(moment) {
    const place = this.placeAt(moment);
    for (let at = place - 1; at >= Math.max(0, place - 4); at--) {
      if (this.trace.endOf(this.calls[at]) > moment) {
        return at;
      }
    }
    return place;
  }

  #drawEach(context, view, box, colours, first, last) {
    const { trace, calls } = this;
    context.font = FONT_SMALL;
    for (let at = first; at < last; at++) {
      const call = calls[at];
      const kind = this.kindAt(at);
      const left = view.x(trace.time[call]);
      const right = view.x(trace.endOf(call));
      const x = box.left + Math.max(left, -2);
      const width = Math.max(1, Math.min(right, box.width + 2) - Math.max(left, -2));
      context.fillStyle = colours.kinds[kind];
      context.fillRect(x, box.top, width > 2 ? width - 0.5 : width, box.height);
      if (trace.isFailed(call) && kind !== DIMMED) {
        context.fillStyle = colours.error;
        context.fillRect(x, box.top + box.height - 3, Math.max(width, 2), 3);
      }
      if (width > 40 && kind !== DIMMED) {
        const text = trace.kernelOf(call)?.shown ?? trace.nameOf(call);
        const shown = fitted(context, text, width - 8, 0);
        context.fillStyle = colours.onKind;
        context.fillText(shown, x + 4, box.top + box.height / 2 + 0.5);
      }
    }
  }

  /** Calls wider than a pixel, which the columns show only where they begin. */
  #drawLong(context, view, box, colours, first, last) {
    const { duration } = this.trace;
    for (let block = Math.floor(first / BLOCK); block * BLOCK < last; block++) {
      if (this.longest[block] < 2 * view.timeOfPixel) {
        continue;
      }
      const end = Math.min(last, (block + 1) * BLOCK);
      for (let at = Math.max(first, block * BLOCK); at < end; at++) {
        if (duration[this.calls[at]] >= 2 * view.timeOfPixel) {
          this.#drawEach(context, view, box, colours, at, at + 1);
        }
      }
    }
  }

  /** The call at a moment, or the nearest one within `slack`; null if there is none. */
  callAt(moment, slack) {
    const { trace, calls } = this;
    const place = this.placeAt(moment);
    let [best, distance] = [null, Infinity];
    for (let at = Math.max(0, place - 5); at < Math.min(calls.length, place + 2); at++) {
      const call = calls[at];
      const away = Math.max(trace.time[call] - moment, moment - trace.endOf(call), 0);
      if (away <= slack && away <= distance) {
        [best, distance] = [call, away];
      }
    }
    return best;
  }
}

/** A column in which each kind has its share of the height, and at least one pixel. */
function paintColumn(x, sums, pixel, colours) {
  const { height } = PAINTER;
  let bottom = height;
  for (let kind = 0; kind < sums.length && bottom > 0; kind++) {
    if (sums[kind] > 0) {
      const share = Math.max(1, Math.round(Math.min(1, sums[kind] / pixel) * height));
      PAINTER.fill(x, bottom - share, bottom, colours[kind]);
      bottom -= share;
    }
  }
}
