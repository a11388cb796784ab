// Findings: the list, what they say, and the lives of their objects on the timeline.

class Findings {
  constructor(trace) {
    this.trace = trace;
    this.list = trace.facts.findings;
    this.list.forEach((finding, number) => (finding.number = number));
    this.byCall = new Map();
    for (const finding of this.list) {
      if (finding.call) {
        const { call } = finding.call;
        this.byCall.set(call, [...(this.byCall.get(call) ?? []), finding]);
      }
    }
  }

  counts() {
    const number = (severity) =>
      this.list.filter((finding) => finding.severity === severity).length;
    return { errors: number("error"), warnings: number("warning"), advice: number("advice") };
  }

  at(call) {
    return this.byCall.get(call) ?? [];
  }

  /** For the timeline, in the order of time. */
  moments() {
    const { trace } = this;
    return this.list
      .map((finding) => ({
        time: finding.call ? trace.time[finding.call.call] : trace.end,
        colour: finding.severity,
        hit: { finding, call: finding.call?.call ?? null },
      }))
      .sort((a, b) => a.time - b.time);
  }

  /** The lives of a finding's objects, and all calls that it is about. */
  history(finding) {
    const lives = finding.objects.map((object) => {
      const words =
        object.destroyed === null
          ? `created: ${object.created}`
          : `created: ${object.created}; ended: ${object.destroyed}`;
      return {
        label: object.label,
        created: object.created_call,
        ended: object.destroyed_call,
        words,
      };
    });
    const calls = lives.flatMap(({ created, ended }) => [created, ended]);
    calls.push(finding.call?.call ?? null);
    const known = calls.filter((call) => call !== null && call < this.trace.calls);
    return { lives, calls: known };
  }
}

class FindingsView {
  constructor(app) {
    this.app = app;
    this.nodes = app.findings.list.map((finding) => this.#finding(finding));
    const shown = new Set(["error", "warning", "advice"]);
    const choose = (severity, event) => {
      shown[event.target.checked ? "add" : "delete"](severity);
      this.nodes.forEach((node, number) => {
        node.hidden = !shown.has(app.findings.list[number].severity);
      });
    };
    const { errors, warnings, advice } = app.findings.counts();
    const choices = [
      ["error", errors, "errors"],
      ["warning", warnings, "warnings"],
      ["advice", advice, "advice"],
    ];
    this.node = element(
      "div",
      { class: "view" },
      element("h1", {}, "Findings"),
      element("p", { class: "about" }, this.#about()),
      element(
        "p",
        {},
        choices
          .filter(([, number]) => number > 0)
          .map(([severity, number, many]) =>
            element(
              "label",
              { class: `badge ${severity}` },
              element("input", {
                type: "checkbox",
                checked: true,
                onchange: (event) => choose(severity, event),
              }),
              ` ${count(number)} ${number === 1 ? severity : many}`,
            ),
          ),
      ),
      this.nodes,
    );
  }

  #about() {
    const { list } = this.app.findings;
    const omitted = this.app.facts.omitted;
    const found =
      list.length === 0
        ? "cutape check finds no misuse of the driver API in this trace."
        : "What cutape check finds in this trace, the worst first.";
    return omitted ? `${found} Not shown: ${omitted}.` : found;
  }

  show(node) {
    replaceContent(node, this.node);
  }

  open(number) {
    const node = this.nodes[number];
    if (node) {
      node.open = true;
      node.scrollIntoView({ block: "start" });
      node.querySelector("summary").focus({ preventScroll: true });
    }
  }

  #finding(finding) {
    // The body of a finding is built when it is opened: there may be thousands.
    const body = element("div", { class: "body" });
    const fill = () => {
      if (body.childElementCount === 0) {
        append(body, this.#body(finding));
      }
    };
    const { call } = finding;
    return element(
      "details",
      {
        class: `finding ${finding.severity}`,
        open: this.app.findings.list.length === 1,
        ontoggle: fill,
      },
      element(
        "summary",
        {},
        badge(finding.severity),
        element("span", { class: "title" }, finding.title),
        finding.repeats
          ? element("span", { class: "dim" }, `and ${count(finding.repeats)} more`)
          : null,
        element("code", { class: "dim" }, finding.rule),
        element(
          "span",
          { class: "dim number" },
          call ? `call ${count(call.call)}` : "end of the trace",
        ),
      ),
      body,
    );
  }

  /** Who wrote the memory that a finding is about, before its call or the end of the memory. */
  #whyNode({ label, destroyed_call: end }, call) {
    const memory = /^memory#\d+/.exec(label);
    if (!memory) {
      return null;
    }
    const moments = [call?.call, end].filter((moment) => Number.isInteger(moment));
    const when = moments.length ? ` --at ${Math.min(...moments)}` : "";
    return element("div", { class: "dim" }, whyCommand(this.app, `${memory[0]}${when}`));
  }

  #body(finding) {
    const { app } = this;
    const { call } = finding;
    return [
      element("p", {}, withCallLinks(finding.message)),
      call
        ? [
            element(
              "p",
              { class: "code call-text" },
              callLink(call.call, `call ${count(call.call)}`),
              ` ${call.text} = ${resultWords(call.result)}`,
            ),
            element(
              "p",
              { class: "dim" },
              `${app.trace.threadName(call.thread)}, at ${call.place}`,
            ),
            call.driver_messages.map((message) =>
              element("p", {}, element("b", {}, "The driver’s log: "), message),
            ),
          ]
        : null,
      call?.frames.length ? frameList(call.frames) : null,
      finding.objects.length ? element("h3", {}, "Objects") : null,
      finding.objects.map((object) =>
        element(
          "div",
          { class: "history" },
          element("b", {}, object.label),
          element("div", {}, "created: ", withCallLinks(object.created)),
          object.destroyed === null
            ? element("div", { class: "dim" }, "never ended")
            : element("div", {}, "ended: ", withCallLinks(object.destroyed)),
          object.parents.length
            ? element("div", { class: "dim" }, `part of ${object.parents.join(", part of ")}`)
            : null,
          this.#whyNode(object, call),
        ),
      ),
      finding.chain.length
        ? [
            element("h3", {}, "Chain of causes"),
            element(
              "ol",
              {},
              finding.chain.map((step) => element("li", {}, withCallLinks(step))),
            ),
          ]
        : null,
      finding.advice
        ? element("p", {}, element("b", {}, "What to do: "), withCallLinks(finding.advice))
        : null,
      element("p", { class: "dim" }, `Confidence: ${finding.confidence}`),
      finding.manual ? element("p", { class: "dim" }, `Manual: ${finding.manual}`) : null,
      element(
        "p",
        { class: "dim" },
        "More about the rule: ",
        element("code", {}, `cutape explain ${finding.rule}`),
      ),
      element(
        "div",
        { class: "actions" },
        element(
          "a",
          { class: "button", href: `#/finding/${finding.number}/timeline` },
          "Show on the timeline, with the lives of the objects",
        ),
      ),
    ];
  }
}

/** The result of a call, as other verbs write it. */
function resultWords(result) {
  return result ? String(result.name ?? result.code) : "did not return";
}

/** A call stack, the innermost frame first. */
function frameList(frames) {
  return [
    element("h3", {}, "Call stack"),
    element(
      "ol",
      { class: "frames", start: "0" },
      frames.map((frame) => {
        const place = frame.file
          ? `${frame.file}${frame.line ? `:${frame.line}` : ""}`
          : frame.module;
        const text = [
          frame.function || `0x${frame.address.toString(16)}`,
          place && ` ${place}`,
          frame.is_inlined ? " [inlined]" : "",
        ].join("");
        return element("li", { class: frame.is_own ? "own" : null }, text);
      }),
    ),
  ];
}
