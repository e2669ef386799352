// Replace what is shown by the newest page, once a second while somebody looks.
"use strict";
let busy = false;
async function update() {
  if (busy || document.hidden || document.activeElement instanceof HTMLInputElement) return;
  busy = true;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, signal: AbortSignal.timeout(10000) });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.querySelector("main"), shown = document.querySelector("main");
    if (!fresh) throw new Error("this is not a page");
    if (fresh.innerHTML !== shown.innerHTML) shown.replaceWith(document.adoptNode(fresh));
  } catch (error) {
    let gone = document.getElementById("gone");
    if (!gone) {
      gone = document.createElement("p");
      gone.id = "gone";
      gone.className = "bad";
      document.querySelector("main").prepend(gone);
    }
    gone.textContent = "parsync serve does not answer: this page is old.";
  } finally {
    busy = false;
  }
}
setInterval(update, 1000);
