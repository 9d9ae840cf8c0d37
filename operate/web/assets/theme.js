// Light, dark, or as the system has it. Runs before the page is drawn, so that nothing flashes; the
// choice is remembered by the browser where it lets us.

(() => {
  const root = document.documentElement;
  const known = ["auto", "light", "dark"];

  const remembered = () => {
    try {
      return localStorage.getItem("theme");
    } catch {
      return null;
    }
  };

  const show = (theme) => {
    if (theme === "auto") delete root.dataset.theme;
    else root.dataset.theme = theme;
  };

  const first = known.includes(remembered()) ? remembered() : "auto";
  show(first);

  document.addEventListener("DOMContentLoaded", () => {
    const choice = document.getElementById("theme");
    choice.querySelector(`[value="${first}"]`).checked = true;
    choice.addEventListener("change", (event) => {
      show(event.target.value);
      try {
        localStorage.setItem("theme", event.target.value);
      } catch {
        // Then the choice holds as long as the page is open.
      }
    });
  });
})();
