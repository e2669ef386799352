// Replace what is shown by the newest page, once a second while somebody looks; show events as they come.
"use strict";
let busy = false, live = false;
async function update() {
  if (busy || document.hidden || document.activeElement instanceof HTMLInputElement) return;
  busy = true;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, signal: AbortSignal.timeout(10000) });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.querySelector("main"), shown = document.querySelector("main");
    if (!fresh) throw new Error("this is not a page");
    const events = shown.querySelector("#events");
    if (live && events) fresh.querySelector("#events")?.replaceWith(page.importNode(events, true));
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
function follow(after) {
  const source = new EventSource("/events?after=" + encodeURIComponent(after));
  source.onopen = () => { live = true; };
  source.onerror = () => { live = false; };
  source.onmessage = (message) => {
    const list = document.getElementById("events"), event = JSON.parse(message.data);
    const line = document.createElement("li"), time = document.createElement("time"), text = document.createElement("span");
    time.textContent = new Date(event.at_ms).toISOString().replace("T", " ").replace("Z", " UTC");
    text.textContent = event.text;
    line.append(time, " ", text);
    list.prepend(line);
    while (list.children.length > Number(list.dataset.most)) list.lastElementChild.remove();
  };
}
setInterval(update, 1000);
const events = document.getElementById("events");
if (events) follow(events.dataset.after);
