// Memory over time: how much of each kind is allocated after each call that changes it.

class MemorySeries {
  constructor(trace, columns) {
    this.trace = trace;
    this.kinds = trace.facts.memory_kinds;
    /** The calls that changed it. */
    this.call = columns.get("memory.call");
    const kind = columns.get("memory.kind");
    const size = columns.get("memory.bytes");
    const isFree = columns.get("memory.is_free");
    const steps = this.call.length;
    /** When: a new block counts from the return of its call, a freed one until the entry. */
    this.time = new Float64Array(steps);
    /** Bytes of each kind after each step. */
    this.amounts = this.kinds.map(() => new Float64Array(steps));
    this.total = new Float64Array(steps);
    this.accounts = this.kinds.map(({ key, name }, number) => ({
      kind: number,
      key,
      name,
      allocations: 0,
      freed: 0,
      allocated: 0,
      peak: 0,
      peakCall: null,
      live: 0,
    }));
    this.peak = { bytes: 0, call: null, step: -1 };
    let [total, now] = [0, 0];
    for (let step = 0; step < steps; step++) {
      const call = this.call[step];
      const account = this.accounts[kind[step]];
      const change = isFree[step] ? -size[step] : size[step];
      account.live += change;
      total += change;
      countChange(account, change, call, isFree[step]);
      now = Math.max(now, isFree[step] ? trace.time[call] : trace.endOf(call));
      this.time[step] = now;
      this.amounts.forEach((amounts, of) => (amounts[step] = this.accounts[of].live));
      this.total[step] = total;
      if (total > this.peak.bytes) {
        this.peak = { bytes: total, call, step };
      }
    }
    this.used = this.accounts.filter(({ allocations }) => allocations > 0);
  }

  get isEmpty() {
    return this.time.length === 0;
  }

  /** The last step at or before a moment; -1 before the first. */
  stepAt(moment) {
    return lowerBound(this.time, moment + 1e-9) - 1;
  }

  /** The largest allocations that live after a call. */
  liveAfter(call, most) {
    const { objects } = this.trace;
    const live = [];
    for (let object = 0; object < objects.length; object++) {
      const end = objects.endOf(object);
      const lives = objects.created[object] <= call && (end === null || end > call);
      if (lives && objects.memoryOf(object)) {
        live.push(object);
      }
    }
    live.sort((a, b) => objects.bytes[b] - objects.bytes[a]);
    return { count: live.length, largest: live.slice(0, most) };
  }

  /** Draws the amounts, stacked, as areas. A column of pixels shows the most that it holds. */
  draw(context, view, box, colours, most) {
    if (this.isEmpty) {
      return;
    }
    const columns = Math.ceil(box.width);
    const peaks = this.#peaks(view, columns);
    const below = new Float64Array(columns);
    for (const { kind, key } of this.used) {
      const amounts = this.amounts[kind];
      context.fillStyle = colours.memory[key];
      for (let x = 0; x < columns; x++) {
        const amount = peaks[x] < 0 ? 0 : amounts[peaks[x]];
        if (amount > 0) {
          const bottom = box.top + box.height * (1 - below[x] / most);
          below[x] += amount;
          const top = box.top + box.height * (1 - below[x] / most);
          context.fillRect(box.left + x, top, 1, Math.max(bottom - top, 0.6));
        }
      }
    }
  }

  /** For each column of pixels the step with the most bytes. */
  #peaks(view, columns) {
    const peaks = new Int32Array(columns);
    let step = this.stepAt(view.from);
    for (let x = 0; x < columns; x++) {
      const next = this.stepAt(view.from + (x + 1) * view.timeOfPixel);
      let best = step;
      for (let at = step + 1; at <= next; at++) {
        if (best < 0 || this.total[at] > this.total[best]) {
          best = at;
        }
      }
      peaks[x] = best;
      step = next;
    }
    return peaks;
  }
}

function countChange(account, change, call, isFree) {
  if (isFree) {
    account.freed += 1;
    return;
  }
  account.allocations += 1;
  account.allocated += change;
  if (account.live > account.peak) {
    account.peak = account.live;
    account.peakCall = call;
  }
}
