// Memory over time, by kind, with the call that caused the peak and what lived then.

const CHART_LEFT = 84;
const CHART_BOTTOM = 26;

class MemoryView {
  constructor(app) {
    this.app = app;
    this.trace = app.trace;
    this.series = app.series;
    this.canvas = element("canvas", { role: "img", "aria-label": this.#words() });
    this.readout = element("p", { class: "about", "aria-live": "polite" });
    this.pointer = null;
    this.canvas.addEventListener("pointermove", (event) => this.#move(event.offsetX));
    this.canvas.addEventListener("pointerleave", () => this.#move(null));
    this.canvas.addEventListener("click", (event) => this.#open(event.offsetX));
    this.chart = element("div", { class: "chart" }, this.canvas);
    this.node = element("div", { class: "view" }, this.#content());
    new ResizeObserver(() => this.draw()).observe(this.chart);
  }

  #words() {
    const { peak } = this.series;
    return peak.call === null
      ? "Memory over time: nothing is allocated"
      : `Memory over time: at most ${bytes(peak.bytes)}, after call ${peak.call}`;
  }

  #content() {
    const { series } = this;
    const heading = element("h1", {}, "Memory over time");
    if (series.isEmpty) {
      return [heading, element("p", { class: "none" }, "The program allocated no memory.")];
    }
    const { peak } = series;
    return [
      heading,
      element(
        "p",
        { class: "about" },
        `The most at once, ${bytes(peak.bytes)} of all kinds, is reached by `,
        callLink(peak.call, `call ${count(peak.call)}`),
        ` ${this.trace.nameOf(peak.call)}. Memory counts from the return of the call that ` +
          "allocates it until the call that frees it. Click the chart to open a call.",
      ),
      element(
        "ul",
        { class: "legend" },
        series.used.map(({ key, name }) => element("li", {}, swatch(`--memory-${key}`), name)),
      ),
      this.readout,
      this.chart,
      element("h2", {}, "Allocations by kind"),
      this.#accountTable().node,
      element("h2", {}, "Largest allocations at the peak"),
      this.#peakTable(),
    ];
  }

  #accountTable() {
    return new SortedTable({
      caption: "Allocations by kind of memory",
      rows: this.series.used,
      columns: [
        { title: "Memory", cell: (row) => [swatch(`--memory-${row.key}`), " ", row.name] },
        {
          title: "Allocations",
          right: true,
          value: (row) => row.allocations,
          cell: (row) => count(row.allocations),
        },
        { title: "Freed", right: true, value: (row) => row.freed, cell: (row) => count(row.freed) },
        {
          title: "Total",
          right: true,
          value: (row) => row.allocated,
          cell: (row) => bytes(row.allocated),
        },
        { title: "Peak", right: true, value: (row) => row.peak, cell: (row) => bytes(row.peak) },
        {
          title: "Peak reached by",
          cell: (row) =>
            row.peakCall === null
              ? "–"
              : [
                  callLink(row.peakCall, `call ${count(row.peakCall)}`),
                  " ",
                  element("code", {}, this.trace.nameOf(row.peakCall)),
                ],
        },
        {
          title: "At the end",
          right: true,
          value: (row) => row.live,
          cell: (row) => bytes(row.live),
        },
      ],
    });
  }

  #peakTable() {
    const { trace, series } = this;
    const { objects } = trace;
    const { count: all, largest } = series.liveAfter(series.peak.call, 20);
    const table = new SortedTable({
      caption: "Largest allocations at the peak",
      rows: largest,
      columns: [
        {
          title: "Bytes",
          right: true,
          value: (row) => objects.bytes[row],
          cell: (row) => bytes(objects.bytes[row]),
        },
        {
          title: "Share",
          right: true,
          cell: (row) => share(objects.bytes[row], series.peak.bytes),
        },
        { title: "Address", class: "name", cell: (row) => objects.handle(row) },
        { title: "Kind", cell: (row) => objects.name(row) },
        {
          title: "Allocated by",
          cell: (row) => [
            callLink(objects.created[row]),
            " ",
            element("code", {}, trace.nameOf(objects.created[row])),
          ],
        },
        {
          title: "Freed by",
          cell: (row) => {
            const end = objects.endOf(row);
            return end === null
              ? "never"
              : [callLink(end), " ", element("code", {}, trace.nameOf(end))];
          },
        },
        { title: "Who wrote it", class: "text", cell: (row) => this.#whyCell(row) },
      ],
    });
    const rest = all > largest.length ? `${counted(all, "allocation")} lived then.` : null;
    return [table.node, rest ? element("p", { class: "more dim" }, rest) : null];
  }

  /** Asked before the memory ends: later its address may be that of other memory. */
  #whyCell(row) {
    const { objects } = this.trace;
    const end = objects.endOf(row);
    const when = end === null ? "" : ` --at ${end}`;
    return whyCommand(this.app, `${objects.handle(row)}${when}`);
  }

  show(node) {
    replaceContent(node, this.node);
    this.#move(null);
  }

  get view() {
    return new View(
      0,
      Math.max(this.trace.end, 1),
      Math.max(40, this.chart.clientWidth - CHART_LEFT - 14),
    );
  }

  #move(x) {
    this.pointer = x;
    const step = x === null ? null : this.series.stepAt(this.view.moment(x - CHART_LEFT));
    this.readout.textContent = this.#readoutText(step);
    this.draw();
  }

  #readoutText(step) {
    const { series, trace } = this;
    if (series.isEmpty || step === null) {
      return "Point at the chart to read it.";
    }
    if (step < 0) {
      return "Nothing is allocated yet.";
    }
    const amounts = series.used.map(
      ({ kind, name }) => `${name} ${bytes(series.amounts[kind][step])}`,
    );
    const call = series.call[step];
    return (
      `${exact(trace, series.time[step])}: ${amounts.join(", ")}; changed by call ` +
      `${count(call)} ${trace.nameOf(call)}`
    );
  }

  #open(x) {
    const step = this.series.stepAt(this.view.moment(x - CHART_LEFT));
    if (step >= 0) {
      this.app.go(`#/call/${this.series.call[step]}`);
    }
  }

  draw() {
    if (!this.chart.isConnected || this.series.isEmpty) {
      return;
    }
    const { colours } = this.app;
    const { clientWidth: width, clientHeight: height } = this.chart;
    const context = sizedContext(this.canvas, width, height);
    const { view } = this;
    const { step, most } = byteSteps(this.series.peak.bytes);
    const box = {
      left: CHART_LEFT,
      top: 12,
      width: view.width,
      height: height - 12 - CHART_BOTTOM,
    };
    context.font = FONT_SMALL;
    context.textBaseline = "middle";
    for (let amount = 0; amount <= most; amount += step) {
      const y = Math.round(box.top + box.height * (1 - amount / most));
      context.fillStyle = colours.line;
      context.fillRect(box.left, y, box.width, 1);
      context.fillStyle = colours.dim;
      context.textAlign = "right";
      context.fillText(bytes(amount), box.left - 8, y);
    }
    context.textAlign = "left";
    const timeStep = roundStep(110 * view.timeOfPixel);
    for (let at = 0; at * timeStep <= view.to; at++) {
      const x = box.left + view.x(at * timeStep);
      const text = moment(at * timeStep, timeStep, this.trace.clock);
      context.fillStyle = colours.lineStrong;
      context.fillRect(x, box.top + box.height, 1, 5);
      context.fillStyle = colours.dim;
      if (x + context.measureText(text).width + 4 < width) {
        context.fillText(text, x + 4, box.top + box.height + 14);
      }
    }
    this.series.draw(context, view, box, colours, most);
    this.#drawPeak(context, view, box, most, colours);
    if (this.pointer !== null && this.pointer > CHART_LEFT) {
      context.fillStyle = colours.accent;
      context.fillRect(this.pointer, box.top, 1, box.height);
    }
  }

  #drawPeak(context, view, box, most, colours) {
    const { peak } = this.series;
    const x = box.left + view.x(this.series.time[peak.step]);
    const y = box.top + box.height * (1 - peak.bytes / most);
    context.fillStyle = colours.text;
    context.beginPath();
    context.arc(x, y, 3.5, 0, 7);
    context.fill();
    const text = `peak: call ${count(peak.call)}`;
    const width = context.measureText(text).width;
    const left = x + width + 12 > box.left + box.width ? x - width - 8 : x + 8;
    context.fillText(text, left, Math.max(box.top + 7, y - 9));
  }
}

/** Steps of a byte axis: powers of two, four to eight of them. */
function byteSteps(peak) {
  const step = 2 ** Math.max(0, Math.ceil(Math.log2(Math.max(peak, 1) / 7)));
  return { step, most: Math.ceil((Math.max(peak, 1) * 1.04) / step) * step };
}
