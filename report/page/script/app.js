// The page as a whole: reads the data, then shows the view that the address names.

class App {
  constructor(facts, columns) {
    this.facts = facts;
    this.trace = new Trace(facts, columns);
    this.findings = new Findings(this.trace);
    this.series = new MemorySeries(this.trace, columns);
    this.columns = columns;
    this.filter = new Filter(this.trace);
    this.main = document.querySelector("[data-main]");
    this.made = new Map();
    this.readColours();
    this.views = this.#views();
    this.#fillBar();
  }

  #views() {
    const { trace, facts, findings } = this;
    const leaks = facts.summary.never_destroyed.reduce((sum, row) => sum + row.count, 0);
    const { errors, warnings } = findings.counts();
    const tone = errors ? "error" : warnings ? "warning" : "";
    return [
      { key: "summary", title: "Summary", make: () => still(summaryView(this)) },
      { key: "timeline", title: "Timeline", fills: true, make: () => new Timeline(this) },
      {
        key: "calls",
        title: "Calls",
        count: trace.calls,
        fills: true,
        make: () => new CallsView(this),
      },
      {
        key: "kernels",
        title: "Kernels",
        count: facts.summary.kernels.length,
        make: () => new KernelsView(this),
      },
      facts.gpu && { key: "gpu", title: "GPU time", make: () => new GpuView(this) },
      { key: "memory", title: "Memory", make: () => new MemoryView(this) },
      {
        key: "findings",
        title: "Findings",
        count: findings.list.length,
        tone,
        make: () => new FindingsView(this),
      },
      {
        key: "images",
        title: "Images",
        count: facts.summary.images.length,
        make: () => still(imagesView(this)),
      },
      { key: "leaks", title: "Never destroyed", count: leaks, make: () => still(leaksView(this)) },
      facts.why && {
        key: "why",
        title: "Who wrote",
        make: () => still(whyView(this)),
      },
      facts.replay && {
        key: "replay",
        title: "Replay",
        count: facts.replay.divergence_count,
        tone: facts.replay.divergence_count ? "error" : "",
        make: () => still(replayView(this)),
      },
      facts.bench && {
        key: "bench",
        title: "Benchmarks",
        count: facts.bench.benchmarks.length,
        make: () => still(benchView(this)),
      },
    ].filter(Boolean);
  }

  #fillBar() {
    const name = document.querySelector("[data-trace-name]");
    name.textContent = this.facts.summary.trace.path.split("/").pop();
    name.title = this.facts.summary.trace.path;
    replaceContent(
      document.querySelector("[data-views]"),
      this.views.map((view) =>
        element(
          "a",
          { href: `#/${view.key}`, "data-view": view.key },
          view.title,
          view.count === undefined
            ? null
            : element("span", { class: `count ${view.tone ?? ""}` }, count(view.count)),
        ),
      ),
    );
    fillHelp(document.querySelector("[data-help]"));
    this.search = new Search(this);
  }

  readColours() {
    const kinds = [...KINDS.map(([key]) => cssColour(`--kind-${key}`)), cssColour("--kind-dimmed")];
    this.colours = {
      kinds,
      kindPixels: kinds.map(pixelColour),
      memory: Object.fromEntries(
        this.facts.memory_kinds.map(({ key }) => [key, cssColour(`--memory-${key}`)]),
      ),
      ranges: Array.from({ length: RANGE_COLOURS }, (_, at) => cssColour(`--range-${at}`)),
      onKind: cssColour("--on-kind"),
      text: cssColour("--text"),
      dim: cssColour("--text-dim"),
      line: cssColour("--line"),
      lineStrong: cssColour("--line-strong"),
      accent: cssColour("--accent"),
      error: cssColour("--error"),
      warning: cssColour("--warning"),
      advice: cssColour("--advice"),
      inFlight: cssColour("--in-flight"),
      life: cssColour("--selected"),
      shade: cssColour("--shade"),
      markedSoft: cssColour("--marked"),
    };
  }

  go(hash) {
    window.location.hash = hash;
  }

  /** `#/timeline` or `#timeline`, `#/calls?FILTER`, `#/call/12`, `#/finding/3/timeline`. */
  route() {
    const [path, query] = window.location.hash.replace(/^#\/?/, "").split("?", 2);
    const [key, argument, how] = path.split("/");
    if (query !== undefined) {
      this.search.setText(decodeURIComponent(query));
    }
    const number = Number(argument);
    if (key === "call" && number < this.trace.calls) {
      this.show("timeline").selectCall(number);
    } else if (key === "finding" && number < this.findings.list.length) {
      if (how === "timeline") {
        this.show("timeline").showFinding(this.findings.list[number]);
      } else {
        this.show("findings").open(number);
      }
    } else {
      this.show(this.views.some((view) => view.key === key) ? key : "summary");
    }
  }

  /** Shows a view, which is made when it is first shown. */
  show(key) {
    const view = this.views.find((candidate) => candidate.key === key);
    if (!this.made.has(key)) {
      this.made.set(key, view.make());
    }
    const made = this.made.get(key);
    if (this.shown !== key) {
      const frame = view.fills ? element("div", { class: "view fills" }) : this.main;
      if (view.fills) {
        replaceContent(this.main, frame);
      }
      made.show(frame);
      this.main.scrollTop = 0;
      this.shown = key;
      this.main.dataset.shown = key;
    }
    for (const link of document.querySelectorAll("[data-view]")) {
      const isCurrent = link.dataset.view === key;
      link.toggleAttribute("aria-current", isCurrent);
      if (isCurrent) {
        link.setAttribute("aria-current", "page");
      }
    }
    document.title = `${view.title} – ${programName(this.facts.summary)} – cutape`;
    return made;
  }

  filterChanged() {
    this.made.get("timeline")?.setFilter(this.filter);
    for (const key of ["calls", "kernels"]) {
      if (this.shown === key) {
        this.made.get(key).setFilter();
      }
    }
  }

  themeChanged() {
    this.readColours();
    this.made.get("timeline")?.draw();
    this.made.get("memory")?.draw();
    this.made.get("gpu")?.draw();
  }
}

/** A view that does not change. */
function still(node) {
  return { show: (frame) => replaceContent(frame, node) };
}
