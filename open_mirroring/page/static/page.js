"use strict";
// The page works without this. Inside Airflow it is light or dark as chosen there.
const chosen = document.querySelector("html.in-airflow") && localStorage.getItem("theme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
// It adds buttons that copy what can be selected as well.
document.addEventListener("DOMContentLoaded", () => {
  for (const button of document.querySelectorAll(".copier")) {
    if (!navigator.clipboard) continue;
    button.hidden = false;
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(button.dataset.text);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Select it";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }
});
