// Show the newest page as it comes while somebody looks, or ask for it once a second; show events as they come.
"use strict";
let busy = false, live = false, pages = null, stream = null, followed = false, newest = "", heard = 0;
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
function later() {
  return 10000 + 5000 * Math.random();
}
function watch() {
  pages?.close();
  pages = null;
  followed = false;
  if (document.hidden) return;
  const source = pages = new EventSource(location.href);
  source.onerror = () => {
    followed = false;
    if (source.readyState === EventSource.CLOSED) setTimeout(() => { if (pages === source) watch(); }, later());
  };
  source.addEventListener("alive", () => { heard = Date.now(); });
  source.onmessage = (message) => {
    followed = true;
    heard = Date.now();
    newest = message.data;
    update();
  };
}
// The attribute data-after of the list has the id of its newest event, from the page or from the stream.
function follow() {
  stream?.close();
  stream = null;
  live = false;
  const begun = document.getElementById("events");
  if (document.hidden || !begun) return;
  const after = begun.dataset.after;
  const source = stream = new EventSource("/events?after=" + encodeURIComponent(after));
  source.onopen = () => {
    live = document.getElementById("events")?.dataset.after === after;
    if (!live) follow();  // meanwhile the page has shown later events
  };
  source.onerror = () => {
    const wait = source.readyState === EventSource.CLOSED ? later() : 2000;
    source.close();
    live = false;
    setTimeout(() => { if (stream === source) follow(); }, wait);
  };
  source.onmessage = (message) => {
    const list = document.getElementById("events"), event = JSON.parse(message.data);
    const line = document.createElement("li"), time = document.createElement("time"), text = document.createElement("span");
    time.textContent = new Date(event.at_ms).toISOString().replace("T", " ").replace("Z", " UTC");
    text.textContent = event.text;
    line.append(time, " ", text);
    list.prepend(line);
    list.dataset.after = message.lastEventId;
    while (list.children.length > Number(list.dataset.most)) list.lastElementChild.remove();
  };
}
setInterval(update, 1000);
document.addEventListener("visibilitychange", () => { watch(); follow(); });
watch();
follow();
