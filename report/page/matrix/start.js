// Starts the page.

async function start() {
  if (chosenTheme()) {
    document.documentElement.dataset.theme = chosenTheme();
  }
  const switchTheme = () => setTheme(isDark() ? "light" : "dark");
  document.querySelector("[data-theme-switch]").addEventListener("click", switchTheme);
  document.addEventListener("keydown", (event) => {
    if ((event.key === "t" || event.key === "T") && !event.ctrlKey && !event.metaKey) {
      switchTheme();
    }
  });
  const main = document.querySelector("[data-main]");
  try {
    const facts = await readFacts();
    const { traces, node } = facts.not_compared ? comparisonView(facts) : historyView(facts);
    replaceContent(main, node);
    replaceContent(
      document.querySelector("[data-views]"),
      traces.map(({ name, id, isBad }) =>
        element(
          "a",
          { href: `#${id}` },
          name,
          isBad ? element("span", { class: "count error" }, "worse") : null,
        ),
      ),
    );
    document.documentElement.dataset.ready = "1";
  } catch (error) {
    const text =
      `The page cannot be shown: ${error.message}. ` +
      "Use a current Chromium, Firefox or Safari.";
    replaceContent(main, element("p", { class: "failed-to-load", role: "alert" }, text));
    throw error;
  }
}

start();
