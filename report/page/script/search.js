// The filter's field, and going from match to match.

class Search {
  constructor(app) {
    this.app = app;
    this.form = document.querySelector("[data-search]");
    this.input = this.form.querySelector("input");
    this.output = this.form.querySelector("output");
    this.at = null;
    this.input.addEventListener("input", () => this.#apply());
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") {
        event.preventDefault();
        this.move(event.shiftKey ? -1 : 1);
      } else if (event.key === "Escape") {
        this.setText("");
        this.input.blur();
      }
    });
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.form.querySelector("[data-next]").addEventListener("click", () => this.move(1));
    this.form.querySelector("[data-previous]").addEventListener("click", () => this.move(-1));
  }

  setText(text) {
    this.input.value = text;
    this.#apply();
  }

  #apply() {
    const { filter } = this.app;
    filter.set(this.input.value);
    this.app.trace.dim(filter.mask);
    this.at = null;
    this.input.setAttribute("aria-invalid", String(filter.error !== null));
    this.input.title = filter.error ?? "";
    this.output.title = filter.error ?? "";
    this.output.textContent =
      filter.error ??
      (filter.isActive ? `${count(filter.matching)} of ${count(this.app.trace.calls)}` : "");
    this.app.filterChanged();
  }

  /** Shows the next or previous match, in the table of calls or on the timeline. */
  move(direction) {
    const { app } = this;
    const start = direction > 0 ? -1 : app.trace.calls;
    const next = app.filter.next(this.at ?? start, direction) ?? app.filter.next(start, direction);
    if (next === null) {
      return;
    }
    this.at = next;
    if (app.shown === "calls") {
      app.made.get("calls").select(next);
    } else {
      app.show("timeline").selectCall(next);
    }
  }
}
