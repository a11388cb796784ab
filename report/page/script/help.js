// What the keys do, and the terms of the filter.

const KEYS = {
  Everywhere: [
    ["/", "go to the filter"],
    ["Enter, Shift+Enter", "in the filter: next and previous match"],
    ["1 … 9", "the views, from the top"],
    ["T", "light or dark"],
    ["?", "this page"],
  ],
  Timeline: [
    ["W, S or +, −", "zoom in and out"],
    ["A, D or ←, →", "move in time"],
    ["↑, ↓", "scroll the rows"],
    ["[, ]", "previous and next call of the thread"],
    ["F", "zoom to the selection"],
    ["0, Home", "the whole trace"],
    ["Esc", "select nothing"],
    ["Drag, Shift+wheel", "move"],
    ["Ctrl+wheel", "zoom"],
    ["Shift+drag", "mark a part of the time"],
    ["Double click", "zoom to a call or range"],
  ],
  Calls: [
    ["↑, ↓, Page Up, Page Down", "select calls"],
    ["Enter, double click", "show the call on the timeline"],
  ],
};

function fillHelp(dialog) {
  const list = (pairs) =>
    element(
      "dl",
      {},
      pairs.map(([key, text]) => [
        element("dt", {}, element("kbd", {}, key)),
        element("dd", {}, text),
      ]),
    );
  replaceContent(
    dialog,
    element(
      "div",
      { class: "columns" },
      element(
        "div",
        {},
        element("h2", { id: "help-title" }, "Keys"),
        Object.entries(KEYS).map(([title, pairs]) => [element("h3", {}, title), list(pairs)]),
      ),
      element(
        "div",
        {},
        element("h2", {}, "Filter"),
        element(
          "p",
          { class: "dim" },
          "A set of calls, as --calls of the verbs takes it. The filter holds in the timeline, which " +
            "greys the other calls, and in the views Calls and Kernels.",
        ),
        list(FILTER_WORDS),
      ),
    ),
    element(
      "form",
      { method: "dialog" },
      element("p", {}, element("button", { class: "button", autofocus: true }, "Close")),
    ),
  );
}
