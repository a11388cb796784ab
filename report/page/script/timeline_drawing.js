// Draws one frame of the timeline.

class TimelineDrawing {
  constructor(timeline) {
    this.timeline = timeline;
    this.trace = timeline.trace;
    this.colours = timeline.app.colours;
    this.view = timeline.view;
    this.gutter = timeline.gutter;
  }

  draw() {
    this.#overview();
    this.#ruler();
    this.#tracks();
    this.#describe();
  }

  /** What is shown, for those who cannot see it. */
  #describe() {
    const { view, trace } = this;
    const isWhole = view.from <= 0 && view.to >= trace.end;
    const text = isWhole
      ? `shows all ${duration(trace.end, trace.clock)}`
      : `shows ${exact(trace, view.from)} to ${exact(trace, view.to)}`;
    const { canvas, selection } = this.timeline;
    canvas.setAttribute("aria-description", text);
    // Where the selected call is drawn, in pixels from the left edge.
    delete canvas.dataset.selected;
    if (selection?.call !== undefined) {
      const { call } = selection;
      const middle = (trace.time[call] + trace.endOf(call)) / 2;
      canvas.dataset.selected = Math.round(this.gutter + view.x(middle));
    }
  }

  #overview() {
    const { timeline, colours, gutter } = this;
    const { clientWidth: width, clientHeight: height } = timeline.overview.parentElement;
    const context = sizedContext(timeline.overview, width, height);
    const whole = new View(0, Math.max(this.trace.end, CLOSEST), this.view.width);
    const box = { left: gutter, top: 6, width: whole.width, height: height - 12 };
    timeline.overviewLane.draw(context, whole, box, colours);
    const left = gutter + whole.x(timeline.from);
    const right = gutter + whole.x(timeline.to);
    context.fillStyle = colours.shade;
    context.fillRect(gutter, 0, left - gutter, height);
    context.fillRect(right, 0, gutter + whole.width - right, height);
    context.strokeStyle = colours.accent;
    context.lineWidth = 1.5;
    context.strokeRect(left, 1, Math.max(3, right - left), height - 2);
    this.#label(context, timeline.overviewLabel, duration(this.trace.end, this.trace.clock), 0, height);
  }

  #ruler() {
    const { timeline, colours, gutter, view } = this;
    const { clientWidth: width, clientHeight: height } = timeline.ruler.parentElement;
    const context = sizedContext(timeline.ruler, width, height);
    context.font = FONT_SMALL;
    context.textBaseline = "middle";
    context.fillStyle = colours.dim;
    for (const { x, text } of this.#steps()) {
      context.fillRect(gutter + x, height - 6, 1, 6);
      if (x + 8 < view.width - context.measureText(text).width) {
        context.fillText(text, gutter + x + 4, height / 2);
      }
    }
    const shown = duration(view.to - view.from, this.trace.clock);
    context.fillText(fitted(context, `shown: ${shown}`, gutter - 16), 12, height / 2);
  }

  *#steps() {
    const { view } = this;
    const step = roundStep(110 * view.timeOfPixel);
    for (let at = Math.ceil(view.from / step); at * step <= view.to; at++) {
      yield { x: view.x(at * step), text: moment(at * step, step, this.trace.clock) };
    }
  }

  #tracks() {
    const { timeline, colours, gutter, view } = this;
    const frame = timeline.tracksFrame;
    const { clientWidth: width, clientHeight: visible, scrollTop } = frame;
    const total = timeline.tracks.reduce((sum, track) => sum + track.height, 0);
    timeline.spacer.style.height = `${Math.max(total, visible)}px`;
    timeline.canvas.style.height = `${visible}px`;
    const context = sizedContext(timeline.canvas, width, visible);
    context.textBaseline = "middle";

    context.fillStyle = colours.line;
    for (const { x } of this.#steps()) {
      context.fillRect(gutter + x, 0, 1, visible);
    }
    let top = -scrollTop;
    for (const track of timeline.tracks) {
      if (top + track.height > 0 && top < visible) {
        this.#track(context, track, top, width);
      }
      top += track.height;
    }
    this.#marked(context, visible);
    this.#selected(context, visible);
    context.fillStyle = colours.lineStrong;
    context.fillRect(gutter - 1, 0, 1, visible);
  }

  #track(context, track, top, width) {
    const { colours, gutter, view } = this;
    context.save();
    context.beginPath();
    context.rect(gutter, top, view.width, track.height);
    context.clip();
    const box = { left: gutter, top, width: view.width, height: track.height };
    track.draw(context, view, box, colours);
    context.restore();
    context.fillStyle = colours.line;
    context.fillRect(0, Math.round(top + track.height) - 1, width, 1);
    this.#label(context, track.label, track.note, top, track.height);
  }

  #label(context, label, note, top, height) {
    const { colours, gutter } = this;
    const room = gutter - 22;
    const middle = top + height / 2;
    const isSingle = !note || height < 30;
    context.textBaseline = "middle";
    context.font = FONT;
    context.fillStyle = colours.text;
    const name = fitted(context, label, room);
    context.fillText(name, 12, isSingle ? middle : middle - 7);
    const used = isSingle ? context.measureText(name).width + 8 : 0;
    if (note && room - used > 40) {
      context.font = FONT_SMALL;
      context.fillStyle = colours.dim;
      const shown = fitted(context, note, room - used);
      context.fillText(shown, 12 + used, isSingle ? middle + 0.5 : middle + 8);
    }
  }

  /** The part of the time that the user marked. */
  #marked(context, height) {
    const { timeline, colours, gutter, view } = this;
    if (!timeline.marked) {
      return;
    }
    const [from, to] = timeline.marked;
    const left = gutter + Math.max(0, view.x(from));
    const right = gutter + Math.min(view.width, view.x(to));
    if (right > left) {
      context.fillStyle = colours.markedSoft;
      context.fillRect(left, 0, right - left, height);
      context.fillStyle = colours.accent;
      context.fillRect(left, 0, 1, height);
      context.fillRect(right - 1, 0, 1, height);
    }
  }

  #selected(context, height) {
    const { timeline, colours, gutter, view } = this;
    const call = timeline.selection?.call;
    if (call === undefined || call === null) {
      return;
    }
    const left = view.x(this.trace.time[call]);
    const right = view.x(this.trace.endOf(call));
    if (right >= 0 && left <= view.width) {
      const x = gutter + Math.max(0, left);
      const width = Math.max(1.5, Math.min(right, view.width) - Math.max(0, left));
      context.fillStyle = colours.markedSoft;
      context.fillRect(x, 0, width, height);
      context.fillStyle = colours.accent;
      context.fillRect(x, 0, 1.5, height);
    }
  }
}
