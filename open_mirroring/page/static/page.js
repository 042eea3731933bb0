"use strict";
// The page works without this: it only adds buttons that copy what can be selected as well.
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
