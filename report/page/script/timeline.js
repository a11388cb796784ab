// The timeline: an overview, a ruler, the rows, and the details of what is selected.

const GUTTER = 190;
const NARROW_GUTTER = 96;
/** The shortest time that is shown, in nanoseconds. */
const CLOSEST = 40;

class Timeline {
  /** Of the recording, or of another trace with tracks of its own. */
  constructor(app, trace = app.trace, tracks = null) {
    this.app = app;
    this.trace = trace;
    this.base = tracks ?? tracksOf(trace, app.series, app.findings.moments());
    this.lives = [];
    this.selection = null;
    this.marked = null;
    this.from = 0;
    this.to = Math.max(this.trace.end, CLOSEST);
    this.overviewLane = new Lane(this.trace, numbersTo(this.trace.calls));
    this.#build();
    this.controls = new TimelineControls(this);
    new ResizeObserver(() => this.draw()).observe(this.tracksFrame);
    this.setFilter(app.filter);
  }

  get tracks() {
    return [...this.lives, ...this.base];
  }

  #build() {
    const canvas = (label) => element("canvas", { role: "img", "aria-label": label });
    this.overview = canvas("The whole trace; drag to choose what is shown");
    this.ruler = canvas("Time axis");
    this.canvas = element("canvas", {
      tabindex: "0",
      role: "application",
      "aria-label":
        "Timeline. Arrow keys move, plus and minus zoom, square brackets go from call " +
        "to call. The same calls are in the view Calls, as a table.",
    });
    this.spacer = element("div", {}, this.canvas);
    this.tracksFrame = element("div", { class: "tracks" }, this.spacer);
    this.details = element("section", {
      class: "details",
      "aria-label": "Details",
      "aria-live": "polite",
    });
    this.tip = element("div", { class: "tip", hidden: true });
    this.node = element(
      "div",
      { class: "timeline" },
      element("div", { class: "overview" }, this.overview),
      element("div", { class: "ruler" }, this.ruler),
      this.tracksFrame,
      this.details,
      this.tip,
    );
  }

  /** What the overview is of. */
  get overviewLabel() {
    return "All calls";
  }

  /** What is said of the selection. */
  detailNodes() {
    return timelineDetails(this);
  }

  /** What is said of what is at the pointer. */
  tipNodes(hit) {
    return tipOf(this, hit);
  }

  get gutter() {
    return this.tracksFrame.clientWidth < 620 ? NARROW_GUTTER : GUTTER;
  }

  get view() {
    const width = Math.max(50, this.tracksFrame.clientWidth - this.gutter);
    return new View(this.from, this.to, width);
  }

  show(node) {
    replaceContent(node, this.node);
    this.#showDetails();
    this.draw();
  }

  setFilter(filter) {
    this.filter = filter;
    const lanes = this.base.map((track) => track.lane).filter(Boolean);
    for (const lane of [this.overviewLane, ...lanes]) {
      lane.filterChanged();
    }
    this.draw();
  }

  /** Shows a part of the time, as near to it as the trace permits. */
  setView(from, to) {
    const most = Math.max(this.trace.end, CLOSEST);
    const length = Math.min(most, Math.max(CLOSEST, to - from));
    const start = Math.min(Math.max(0, from), most - length);
    this.from = start;
    this.to = start + length;
    this.draw();
  }

  zoom(factor, around) {
    const length = (this.to - this.from) * factor;
    const part = (around - this.from) / (this.to - this.from);
    const clamped = Math.min(Math.max(length, CLOSEST), Math.max(this.trace.end, CLOSEST));
    this.setView(around - part * clamped, around + (1 - part) * clamped);
  }

  pan(part) {
    const by = (this.to - this.from) * part;
    this.setView(this.from + by, this.to + by);
  }

  whole() {
    this.setView(0, this.trace.end);
  }

  /** Selects a call; brings it into view, with its neighbours. */
  selectCall(call, { reveal = true } = {}) {
    this.selection = { call };
    if (reveal) {
      this.#reveal(call);
    }
    this.#showDetails();
    this.draw();
  }

  select(selection) {
    this.selection = selection;
    this.#showDetails();
    this.draw();
  }

  #reveal(call) {
    const [begin, end] = [this.trace.time[call], this.trace.endOf(call)];
    const shown = this.to - this.from;
    const wide = Math.max((end - begin) * 12, 2000);
    if (begin < this.from || end > this.to || wide < shown / 4) {
      const half = Math.max(Math.min(shown, wide * 6), wide) / 2;
      const middle = (begin + end) / 2;
      this.setView(middle - half, middle + half);
    }
    this.#scrollTo(
      (track) =>
        track instanceof CallTrack &&
        !(track instanceof StreamTrack) &&
        this.trace.thread[track.lane.calls[0]] === this.trace.thread[call],
    );
  }

  #scrollTo(isWanted) {
    let top = 0;
    for (const track of this.tracks) {
      if (isWanted(track)) {
        const { scrollTop, clientHeight } = this.tracksFrame;
        if (top < scrollTop || top + track.height > scrollTop + clientHeight) {
          this.tracksFrame.scrollTop = Math.max(0, top - clientHeight / 3);
        }
        return;
      }
      top += track.height;
    }
  }

  /** Shows a finding's call and the lives of its objects. */
  showFinding(finding) {
    const { lives, calls } = this.app.findings.history(finding);
    this.lives = lives.map((life) => new LifeTrack(this.trace, life));
    this.tracksFrame.scrollTop = 0;
    if (calls.length > 0) {
      const first = this.trace.time[Math.min(...calls)];
      const last = this.trace.endOf(Math.max(...calls));
      const margin = Math.max((last - first) * 0.08, 1000);
      this.setView(first - margin, last + margin);
    }
    this.selection = finding.call ? { call: finding.call.call, finding } : { finding };
    this.#showDetails();
    this.draw();
  }

  clear() {
    this.selection = null;
    this.marked = null;
    this.lives = [];
    this.#showDetails();
    this.draw();
  }

  /** The calls before and after on the selected call's thread. */
  step(direction) {
    const { trace } = this;
    let call = this.selection?.call;
    if (call === undefined || call === null) {
      call = lowerBound(trace.time, this.from) - direction;
    }
    const thread = trace.thread[call];
    for (let at = call + direction; at >= 0 && at < trace.calls; at += direction) {
      if (trace.thread[at] === (thread ?? trace.thread[at]) && this.filter.has(at)) {
        this.selectCall(at);
        return;
      }
    }
  }

  trackAt(y) {
    let top = 0;
    for (const track of this.tracks) {
      if (y < top + track.height) {
        return { track, inside: y - top };
      }
      top += track.height;
    }
    return null;
  }

  /** What is at a point of the canvas. */
  hit(x, y) {
    const at = this.trackAt(y + this.tracksFrame.scrollTop);
    const { view, gutter } = this;
    return at && x >= gutter ? at.track.hit(view, view.moment(x - gutter), at.inside) : null;
  }

  draw() {
    if (this.frame || !this.node.isConnected) {
      return;
    }
    this.frame = requestAnimationFrame(() => {
      this.frame = null;
      if (this.node.isConnected) {
        new TimelineDrawing(this).draw();
      }
    });
  }

  #showDetails() {
    replaceContent(this.details, this.detailNodes());
    this.details.scrollTop = 0;
  }
}
