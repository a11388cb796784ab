// Starts the page.

function listen(app) {
  const help = document.querySelector("[data-help]");
  const switchTheme = () => {
    setTheme(isDark() ? "light" : "dark");
    app.themeChanged();
  };
  document.querySelector("[data-theme-switch]").addEventListener("click", switchTheme);
  document.querySelector("[data-help-switch]").addEventListener("click", () => help.showModal());
  document.querySelector("[data-skip]").addEventListener("click", (event) => {
    event.preventDefault();
    app.main.focus();
  });
  window
    .matchMedia("(prefers-color-scheme: dark)")
    .addEventListener("change", () => app.themeChanged());
  window.addEventListener("hashchange", () => app.route());
  document.addEventListener("click", (event) => {
    // A link to where the address already is changes nothing, but the user has moved since.
    if (event.target.closest?.("a[href]")?.getAttribute("href") === window.location.hash) {
      app.route();
    }
  });
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.matches?.("input, textarea, select");
    if (isTyping || help.open || event.ctrlKey || event.metaKey || event.altKey) {
      return;
    }
    if (event.key === "/") {
      event.preventDefault();
      app.search.input.focus();
      app.search.input.select();
    } else if (event.key === "?") {
      help.showModal();
    } else if (event.key === "t" || event.key === "T") {
      switchTheme();
    } else if (/^[1-9]$/.test(event.key) && app.views[Number(event.key) - 1]) {
      app.go(`#/${app.views[Number(event.key) - 1].key}`);
    }
  });
}

async function start() {
  const started = performance.now();
  if (chosenTheme()) {
    document.documentElement.dataset.theme = chosenTheme();
  }
  try {
    const facts = await readFacts();
    const app = new App(facts, await readColumns(facts.columns));
    listen(app);
    app.route();
    document.documentElement.dataset.ready = String(Math.round(performance.now() - started));
  } catch (error) {
    replaceContent(
      document.querySelector("[data-main]"),
      element(
        "p",
        { class: "failed-to-load", role: "alert" },
        `The report cannot be shown: ${error.message}. Use a current Chromium, Firefox or Safari.`,
      ),
    );
    throw error;
  }
}

start();
