// All calls that match the filter, as a table of which only the visible rows exist.

const ROW_HEIGHT = 24;
/** Browsers limit the height of an element. */
const TALLEST = 12_000_000;

class CallsView {
  constructor(app) {
    this.app = app;
    this.trace = app.trace;
    this.selected = null;
    this.body = element("tbody");
    this.table = element(
      "table",
      { "aria-label": "Calls" },
      element(
        "thead",
        {},
        element(
          "tr",
          {},
          CALL_COLUMNS.map(({ title, right, width }) =>
            element("th", { scope: "col", class: right ? "right" : null, style: { width } }, title),
          ),
        ),
      ),
      this.body,
    );
    this.spacer = element("div", { class: "spacer" }, this.table);
    this.node = element(
      "div",
      {
        class: "rows",
        tabindex: "0",
        role: "region",
        "aria-label": "Calls",
        onscroll: () => this.draw(),
        onkeydown: (event) => this.#key(event),
        onclick: (event) => this.#click(event),
        ondblclick: (event) => this.#open(event),
      },
      this.spacer,
    );
    new ResizeObserver(() => this.draw()).observe(this.node);
  }

  show(node) {
    replaceContent(node, this.node);
    this.setFilter();
  }

  setFilter() {
    this.calls = this.app.filter.calls();
    this.length = this.calls ? this.calls.length : this.trace.calls;
    this.node.scrollTop = 0;
    this.draw();
  }

  callAt(place) {
    return this.calls ? this.calls[place] : place;
  }

  get visible() {
    return Math.max(1, Math.floor(this.node.clientHeight / ROW_HEIGHT) - 1);
  }

  get height() {
    return Math.min(TALLEST, (this.length + 1) * ROW_HEIGHT);
  }

  /** The first visible row. */
  get first() {
    const room = this.height - this.node.clientHeight;
    const part = room > 0 ? Math.min(1, this.node.scrollTop / room) : 0;
    return Math.round(part * Math.max(0, this.length - this.visible));
  }

  scrollTo(place) {
    const room = this.height - this.node.clientHeight;
    const rows = Math.max(1, this.length - this.visible);
    this.node.scrollTop = (Math.min(rows, Math.max(0, place)) / rows) * room;
  }

  select(call, { reveal = true } = {}) {
    this.selected = call;
    if (reveal && call !== null) {
      const place = this.calls ? lowerBound(this.calls, call) : call;
      if (place < this.first || place >= this.first + this.visible) {
        this.scrollTo(place - Math.floor(this.visible / 2));
      }
    }
    this.draw();
  }

  draw() {
    if (!this.node.isConnected) {
      return;
    }
    this.spacer.style.height = `${this.height}px`;
    this.table.setAttribute("aria-rowcount", this.length + 1);
    const { first } = this;
    const last = Math.min(this.length, first + this.visible + 1);
    const rows = [];
    for (let place = first; place < last; place++) {
      rows.push(this.#row(this.callAt(place), place));
    }
    if (this.length === 0) {
      const cell = element(
        "td",
        { colspan: CALL_COLUMNS.length, class: "none" },
        "No call matches the filter.",
      );
      rows.push(element("tr", {}, cell));
    }
    replaceContent(this.body, rows);
  }

  #row(call, place) {
    const { trace } = this;
    return element(
      "tr",
      { "data-call": call, "aria-rowindex": place + 2, "aria-selected": call === this.selected },
      CALL_COLUMNS.map(({ cell, right, kind }) => {
        const content = cell(trace, call);
        return element(
          "td",
          {
            class: [right ? "right" : "", kind ?? ""].join(" ").trim() || null,
            title: typeof content === "string" && content.length > 30 ? content : null,
          },
          content,
        );
      }),
    );
  }

  #callOf(event) {
    const call = event.target.closest("tr")?.dataset.call;
    return call === undefined ? null : Number(call);
  }

  #click(event) {
    const call = this.#callOf(event);
    if (call !== null && !event.target.closest("a")) {
      this.select(call, { reveal: false });
    }
  }

  #open(event) {
    const call = this.#callOf(event);
    if (call !== null) {
      this.app.go(`#/call/${call}`);
    }
  }

  #key(event) {
    const place =
      this.selected === null
        ? this.first - 1
        : this.calls
          ? lowerBound(this.calls, this.selected)
          : this.selected;
    const step = {
      ArrowDown: 1,
      ArrowUp: -1,
      PageDown: this.visible,
      PageUp: -this.visible,
      Home: -Infinity,
      End: Infinity,
    }[event.key];
    if (event.key === "Enter" && this.selected !== null) {
      event.preventDefault();
      this.app.go(`#/call/${this.selected}`);
    } else if (step !== undefined && this.length > 0) {
      event.preventDefault();
      this.select(this.callAt(Math.min(this.length - 1, Math.max(0, place + step))));
    }
  }
}

const CALL_COLUMNS = [
  { title: "Call", width: "92px", right: true, cell: (_, call) => callLink(call) },
  {
    title: "Begins",
    width: "126px",
    right: true,
    cell: (trace, call) => exact(trace, trace.time[call]),
  },
  { title: "Takes", width: "92px", right: true, cell: (trace, call) => callTime(trace, call) },
  {
    title: "Thread",
    width: "78px",
    right: true,
    cell: (trace, call) => String(trace.thread[call]),
  },
  {
    title: "Function",
    width: "21%",
    kind: "name",
    cell: (trace, call) => [swatch(`--kind-${trace.kindKey(call)}`), " ", trace.nameOf(call)],
  },
  { title: "About", width: "auto", kind: "name", cell: (trace, call) => trace.about(call) },
  {
    title: "Stream",
    width: "78px",
    right: true,
    cell: (trace, call) => String(trace.workOf(call)?.stream ?? ""),
  },
  {
    title: "Result",
    width: "15%",
    kind: "name",
    cell: (trace, call) =>
      trace.isFailed(call) || trace.inFlight.has(call)
        ? element("span", { class: "failed" }, trace.resultText(call))
        : "",
  },
];
