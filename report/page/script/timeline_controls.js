// Mouse, wheel and keys of the timeline.

class TimelineControls {
  constructor(timeline) {
    this.timeline = timeline;
    this.drag = null;
    const { canvas, overview, tracksFrame } = timeline;
    canvas.addEventListener("pointerdown", (event) => this.#press(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    canvas.addEventListener("pointerup", (event) => this.#release(event));
    canvas.addEventListener("pointerleave", () => this.#hideTip());
    canvas.addEventListener("dblclick", (event) => this.#zoomToHit(event));
    canvas.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    canvas.addEventListener("keydown", (event) => this.#key(event));
    tracksFrame.addEventListener("scroll", () => timeline.draw());
    overview.addEventListener("pointerdown", (event) => this.#overviewPress(event));
    overview.addEventListener("pointermove", (event) => this.#overviewMove(event));
  }

  #point(event) {
    const box = this.timeline.canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  #momentAt(x) {
    const { view, gutter } = this.timeline;
    return view.moment(Math.min(Math.max(x - gutter, 0), view.width));
  }

  #press(event) {
    if (event.button !== 0) {
      return;
    }
    const { x, y } = this.#point(event);
    const { from, to, tracksFrame } = this.timeline;
    this.timeline.canvas.setPointerCapture(event.pointerId);
    this.drag = {
      x,
      y,
      from,
      to,
      scrollTop: tracksFrame.scrollTop,
      marks: event.shiftKey,
      moved: false,
    };
    this.#hideTip();
  }

  #move(event) {
    const { x, y } = this.#point(event);
    const { timeline, drag } = this;
    if (!drag) {
      this.#showTip(event, x, y);
      return;
    }
    drag.moved ||= Math.hypot(x - drag.x, y - drag.y) > 4;
    if (!drag.moved) {
      return;
    }
    if (drag.marks) {
      const moments = [this.#momentAt(drag.x), this.#momentAt(x)];
      timeline.marked = moments.sort((a, b) => a - b);
      timeline.draw();
    } else {
      const by = (drag.x - x) * timeline.view.timeOfPixel;
      timeline.setView(drag.from + by, drag.to + by);
      timeline.tracksFrame.scrollTop = drag.scrollTop + drag.y - y;
    }
  }

  #release(event) {
    const { timeline, drag } = this;
    this.drag = null;
    if (!drag) {
      return;
    }
    if (!drag.moved) {
      const { x, y } = this.#point(event);
      const hit = timeline.hit(x, y);
      if (hit && !hit.text) {
        timeline.select(hit);
      } else if (!hit) {
        timeline.clear();
      }
    } else if (drag.marks) {
      timeline.select(null);
    }
  }

  #zoomToHit(event) {
    const { x, y } = this.#point(event);
    const { timeline } = this;
    const hit = timeline.hit(x, y);
    if (hit?.range !== undefined) {
      const { ranges } = timeline.trace;
      timeline.setView(ranges.begin[hit.range], ranges.endOf(hit.range));
    } else if (hit?.call !== undefined) {
      timeline.selectCall(hit.call);
    } else {
      timeline.zoom(0.5, this.#momentAt(x));
    }
  }

  #wheel(event) {
    const { timeline } = this;
    const lines = event.deltaMode === 1 ? 16 : 1;
    const sideways = event.shiftKey && event.deltaX === 0 ? event.deltaY : event.deltaX;
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      const factor = Math.exp(Math.min(60, Math.max(-60, event.deltaY * lines)) / 120);
      timeline.zoom(factor, this.#momentAt(this.#point(event).x));
    } else if (Math.abs(sideways) > 0) {
      event.preventDefault();
      timeline.pan((sideways * lines) / timeline.view.width);
    }
    this.#hideTip();
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) {
      return;
    }
    const { timeline } = this;
    const middle = (timeline.from + timeline.to) / 2;
    const selected = timeline.selection?.call;
    const around =
      selected !== undefined && selected !== null ? timeline.trace.time[selected] : middle;
    const focus = around >= timeline.from && around <= timeline.to ? around : middle;
    const actions = {
      w: () => timeline.zoom(0.6, focus),
      s: () => timeline.zoom(1 / 0.6, focus),
      "+": () => timeline.zoom(0.6, focus),
      "=": () => timeline.zoom(0.6, focus),
      "-": () => timeline.zoom(1 / 0.6, focus),
      a: () => timeline.pan(-0.2),
      d: () => timeline.pan(0.2),
      ArrowLeft: () => timeline.pan(-0.1),
      ArrowRight: () => timeline.pan(0.1),
      ArrowUp: () => (timeline.tracksFrame.scrollTop -= 40),
      ArrowDown: () => (timeline.tracksFrame.scrollTop += 40),
      "[": () => timeline.step(-1),
      "]": () => timeline.step(1),
      0: () => timeline.whole(),
      Home: () => timeline.whole(),
      f: () => this.#fit(),
      Escape: () => timeline.clear(),
    };
    const action = actions[event.key];
    if (action) {
      event.preventDefault();
      event.stopPropagation();
      action();
    }
  }

  /** Zooms to what is marked or selected. */
  #fit() {
    const { timeline } = this;
    const { trace } = timeline;
    const { call, range } = timeline.selection ?? {};
    if (timeline.marked) {
      timeline.setView(...timeline.marked);
    } else if (range !== undefined) {
      timeline.setView(trace.ranges.begin[range], trace.ranges.endOf(range));
    } else if (call !== undefined && call !== null) {
      timeline.setView(trace.time[call] - 20, trace.endOf(call) + 20);
    }
  }

  #overviewMoment(event) {
    const { timeline } = this;
    const box = timeline.overview.getBoundingClientRect();
    const part = (event.clientX - box.left - timeline.gutter) / timeline.view.width;
    return Math.min(1, Math.max(0, part)) * timeline.trace.end;
  }

  #overviewPress(event) {
    this.timeline.overview.setPointerCapture(event.pointerId);
    this.#overviewMove(event);
  }

  #overviewMove(event) {
    if (event.buttons & 1) {
      const { timeline } = this;
      const half = (timeline.to - timeline.from) / 2;
      const middle = this.#overviewMoment(event);
      timeline.setView(middle - half, middle + half);
    }
  }

  #hideTip() {
    this.timeline.tip.hidden = true;
  }

  #showTip(event, x, y) {
    const { timeline } = this;
    const hit = timeline.hit(x, y);
    if (!hit) {
      this.#hideTip();
      return;
    }
    replaceContent(timeline.tip, timeline.tipNodes(hit));
    timeline.tip.hidden = false;
    const { width, height } = timeline.tip.getBoundingClientRect();
    const left = Math.min(event.clientX + 14, window.innerWidth - width - 8);
    const below = event.clientY + 18;
    const top = below + height > window.innerHeight ? event.clientY - height - 10 : below;
    timeline.tip.style.left = `${Math.max(4, left)}px`;
    timeline.tip.style.top = `${top}px`;
  }
}
