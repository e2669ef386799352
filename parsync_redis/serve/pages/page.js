// Show the newest page as it comes while somebody looks, or ask for it once a second; show events as they come.
"use strict";
let busy = false, live = false, pages = null, followed = false, newest = "", heard = 0;
function typing() {
  return document.activeElement instanceof HTMLInputElement;
}
function show(text) {
  const page = new DOMParser().parseFromString(text, "text/html");
  const fresh = page.querySelector("main"), shown = document.querySelector("main");
  if (!fresh) throw new Error("this is not a page");
  const events = shown.querySelector("#events");
  if (live && events) fresh.querySelector("#events")?.replaceWith(page.importNode(events, true));
  if (fresh.innerHTML !== shown.innerHTML) shown.replaceWith(document.adoptNode(fresh));
}
async function update() {
  if (document.hidden || typing()) return;
  if (followed) {
    if (newest) show(newest);
    newest = "";
    if (Date.now() - heard > 40000) watch();
    return;
  }
  if (busy) return;
  busy = true;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, signal: AbortSignal.timeout(10000) });
    const text = await answer.text();
    if (!followed) show(text);
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
function watch() {
  pages?.close();
  pages = null;
  followed = false;
  if (document.hidden) return;
  pages = new EventSource(location.href);
  pages.onerror = () => { followed = false; };
  pages.addEventListener("alive", () => { heard = Date.now(); });
  pages.onmessage = (message) => {
    followed = true;
    heard = Date.now();
    newest = message.data;
    update();
  };
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
document.addEventListener("visibilitychange", watch);
watch();
const events = document.getElementById("events");
if (events) follow(events.dataset.after);
