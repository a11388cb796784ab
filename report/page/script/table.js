// Tables: sorted by a click on a heading, and cut to their first rows until the user wants all.

const FIRST_ROWS = 100;

/**
 * A table. A column has `title`, `cell(row)`, and optionally `value(row)` to sort by, `right`,
 * `class`, `bar(row)` with the share of the largest, and `hint`.
 */
class SortedTable {
  constructor({ caption, columns, rows, sort = null, detail = null, none = "None." }) {
    this.columns = columns;
    this.rows = rows;
    this.sort = sort;
    this.detail = detail;
    this.none = none;
    this.limit = FIRST_ROWS;
    this.open = new Set();
    this.caption = element("caption", { class: "visually-hidden" }, caption);
    this.head = element("thead");
    this.body = element("tbody");
    this.rest = element("p", { class: "more" });
    this.frame = element(
      "div",
      { class: "table-frame", tabindex: "0", role: "region", "aria-label": caption },
      element("table", {}, this.caption, this.head, this.body),
    );
    this.node = element("div", {}, this.frame, this.rest);
    this.update(rows);
  }

  update(rows) {
    this.rows = rows;
    this.#sortRows();
    this.#draw();
  }

  #sortRows() {
    if (!this.sort) {
      return;
    }
    const { column, descending } = this.sort;
    const value = this.columns[column].value;
    const direction = descending ? -1 : 1;
    this.rows = [...this.rows].sort((a, b) => {
      const [left, right] = [value(a) ?? -Infinity, value(b) ?? -Infinity];
      return left < right ? -direction : left > right ? direction : 0;
    });
  }

  #draw() {
    replaceContent(
      this.head,
      element(
        "tr",
        {},
        this.columns.map((column, at) => this.#th(column, at)),
      ),
    );
    const shown = this.rows.slice(0, this.limit);
    replaceContent(
      this.body,
      shown.map((row) => this.#row(row)),
    );
    if (this.rows.length === 0) {
      const cell = element("td", { colspan: this.columns.length, class: "none" }, this.none);
      this.body.append(element("tr", {}, cell));
    }
    replaceContent(this.rest, this.rows.length > this.limit ? this.#moreButton() : null);
  }

  #moreButton() {
    const more = () => {
      this.limit = Math.min(this.rows.length, this.limit * 10);
      this.#draw();
    };
    const text =
      `Show ${count(Math.min(this.rows.length, this.limit * 10))} of ` +
      `${count(this.rows.length)} rows`;
    return element("button", { type: "button", class: "button", onclick: more }, text);
  }

  #th(column, at) {
    const isSorted = this.sort?.column === at;
    const direction = isSorted ? (this.sort.descending ? "descending" : "ascending") : null;
    const sortBy = () => {
      const descending = isSorted ? !this.sort.descending : Boolean(column.right);
      this.sort = { column: at, descending };
      this.#sortRows();
      this.#draw();
      this.head.querySelectorAll("th")[at].querySelector("button").focus();
    };
    return element(
      "th",
      { scope: "col", class: column.right ? "right" : null, "aria-sort": direction },
      column.value
        ? element("button", { type: "button", title: column.hint, onclick: sortBy }, column.title)
        : column.title,
    );
  }

  #row(row) {
    const cells = this.columns.map((column, at) => {
      const classes = [
        column.right ? "right" : "",
        column.class ?? "",
        column.bar ? "bar-cell" : "",
      ];
      const bar = column.bar
        ? element("i", { style: { width: `${(100 * column.bar(row)).toFixed(2)}%` } })
        : null;
      const expander = at === 0 && this.detail ? this.#expander(row) : null;
      return element(
        "td",
        { class: classes.join(" ").trim() || null },
        bar,
        expander,
        column.cell(row),
      );
    });
    const line = element("tr", {}, cells);
    if (!this.detail || !this.open.has(row)) {
      return [line];
    }
    const detail = element("td", { colspan: this.columns.length }, this.detail(row));
    return [line, element("tr", {}, detail)];
  }

  #expander(row) {
    const isOpen = this.open.has(row);
    const toggle = () => {
      if (!this.open.delete(row)) {
        this.open.add(row);
      }
      this.#draw();
    };
    return element(
      "button",
      {
        type: "button",
        class: "expander",
        "aria-expanded": String(isOpen),
        onclick: toggle,
        "aria-label": isOpen ? "Hide details" : "Show details",
      },
      isOpen ? "▾" : "▸",
    );
  }
}
