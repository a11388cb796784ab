// Light or dark: what the user has chosen, or what the system says.

function chosenTheme() {
  try {
    return localStorage.getItem("cutape-theme");
  } catch {
    return null; // A browser may forbid storage to files.
  }
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("cutape-theme", theme);
  } catch {
    // The choice then holds until the page is closed.
  }
}

function isDark() {
  const { theme } = document.documentElement.dataset;
  return theme ? theme === "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches;
}
