// Runs before the first paint, so that a page in the dark theme does not flash white.
const chosen = localStorage.getItem("dalsegno.theme")
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen
