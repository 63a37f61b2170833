// What is on the screen, and where its data come from: /api is asked every two seconds while the page can be seen.

import { h, setAttribute, setText } from "./dom.js";
import { duration, roughly, time, visible } from "./format.js";
import { IngestView } from "./ingest.js";
import { TableView } from "./table.js";
import { TablesView } from "./tables.js";

const POLL_MS = 2_000;
const SLOWEST_POLL_MS = 10_000;
const HISTORY_MS = 10_000;
const TIMEOUT_MS = 10_000;
/** Data that are older come from a driver that does not respond, though the server does. */
const STALE_S = 20;
const TOKEN = "pykafka-wire token";

const by = (id) => document.getElementById(id);
const [main, banner, live, name, route, help] = ["main", "banner", "live", "name", "route", "help"].map(by);
const state = { view: null, ingest: null, clock: 0, at: 0, lastSeen: null, failures: 0, timer: null, history: -Infinity, shown: false };

class ApiError extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

/** The token comes behind the # of the printed link; it is kept for this tab alone, and leaves the address bar. */
function takeToken() {
  const found = /^#token=(.+)$/.exec(location.hash);
  if (!found) return;
  sessionStorage.setItem(TOKEN, decodeURIComponent(found[1]));
  history.replaceState(null, "", `${location.pathname}#/`);
}

async function get(path) {
  const token = sessionStorage.getItem(TOKEN);
  const response = await fetch(path, {
    headers: token ? { authorization: `Bearer ${token}` } : {},
    signal: AbortSignal.timeout(TIMEOUT_MS),
    credentials: "omit",
  });
  const document = await response.json().catch(() => null);
  if (!response.ok || !document) throw new ApiError(response.status, document?.error ?? `the server responded with ${response.status}`);
  return document;
}

/** The server's time, which goes on between two responses. */
const now = () => state.clock + (performance.now() - state.at) / 1000;

function makeView() {
  const found = /^#\/table\/(.+)$/.exec(location.hash);
  if (found) {
    try {
      return new TableView(decodeURIComponent(found[1]));
    } catch {
      return new TablesView();
    }
  }
  return location.hash === "#/ingest" ? new IngestView() : new TablesView();
}

function navigate() {
  takeToken();
  const before = state.view;
  before?.leave();
  if (before instanceof TablesView) state.tables = { filter: before.filter.value, state: before.state, sort: before.sort, scroll: scrollY };
  const view = makeView();
  state.view = view;
  state.shown = false;
  state.history = -Infinity;
  if (view instanceof TablesView && state.tables) {
    view.filter.value = state.tables.filter;
    view.state = state.tables.state;
  }
  main.replaceChildren(view.element);
  setAttribute(main, "aria-busy", "true");
  for (const link of document.querySelectorAll("nav a")) {
    const name = view instanceof IngestView ? "ingest" : "tables";
    setAttribute(link, "aria-current", link.dataset.view === name ? "page" : null);
  }
  if (before) {
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  poll();
}

async function poll() {
  clearTimeout(state.timer);
  const view = state.view;
  try {
    const [ingest, ...documents] = await Promise.all(["/api/ingest", ...view.needs].map(get));
    if (view !== state.view) return;
    Object.assign(state, { ingest, clock: ingest.at, at: performance.now(), failures: 0, locked: false, starting: false });
    // In place of what was said of a topic that was not there.
    if (view.element.parentNode !== main) main.replaceChildren(view.element);
    if (state.newest !== ingest.at) Object.assign(state, { newest: ingest.at, lastSeen: performance.now() });
    showIngest(ingest);
    view.show(ingest, documents, now);
    setAttribute(main, "aria-busy", null);
    if (!state.shown && view instanceof TablesView && state.tables?.scroll) scrollTo(0, state.tables.scroll);
    state.shown = true;
    showConnection();
    if (view.slow && performance.now() - state.history > HISTORY_MS) readHistory(view);
  } catch (error) {
    if (view !== state.view) return;
    state.failures += 1;
    showFailure(error);
  }
  clearTimeout(state.timer);
  if (document.visibilityState === "visible") state.timer = setTimeout(poll, Math.min(SLOWEST_POLL_MS, POLL_MS * (1 + state.failures)));
}

async function readHistory(view) {
  state.history = performance.now();
  try {
    view.showHistory(await get(view.slow), "");
  } catch (error) {
    if (view !== state.view) return;
    view.showHistory(null, error.status === 503 ? "" : `The table's log cannot be shown: ${error.message}`);
    if (error.status === 503) state.history = -Infinity;
  }
}

function showIngest(ingest) {
  const text = `${visible(ingest.topics)}  →  ${visible(ingest.into)}`;
  setText(route, text);
  setText(name, visible(ingest.name));
  setAttribute(route, "title", text);
  const bad = ingest.totals.states.stopped + ingest.totals.states.retrying;
  document.title = `${bad ? `(${bad}) ` : ""}${state.view.title} · ${visible(ingest.name)}`;
}

/** Whether data come, and what the ingest does. */
function showConnection() {
  if (state.locked) return;
  const seen = state.lastSeen === null ? null : (performance.now() - state.lastSeen) / 1000;
  const ingest = state.ingest;
  if (!ingest) {
    setText(live, state.failures ? "Not connected" : "Connecting …");
    setAttribute(live, "data-kind", state.failures ? "lost" : "");
    return;
  }
  // A connection that is refused tells at once; one response with an error, or one that takes long, may be followed by good ones.
  const isLost = state.failures > (state.refused ? 0 : 1) || seen > STALE_S;
  const since = ingest.started_at === null ? "" : ` ${duration(now() - ingest.started_at)}`;
  const texts = { starting: "Starting", running: `Live${since ? `, running${since}` : ""}`, ended: "Ended", failed: "Failed" };
  setText(live, isLost ? `Last seen ${roughly(seen)} ago` : texts[ingest.state]);
  setAttribute(live, "data-kind", isLost ? "lost" : ingest.state);
  setAttribute(document.body, "data-lost", isLost ? "" : null);
  if (isLost) {
    const why = state.starting ? "The ingest is starting again."
      : !state.failures ? "The ingest's driver does not respond; the page keeps trying."
        : state.status ? `The server responds with error ${state.status}; the page keeps trying.`
          : "No response: the ingest has ended or was killed, or its machine cannot be reached. The page keeps trying.";
    showBanner("lost", `Disconnected. These figures are from ${time(state.newest)}, ${roughly(seen)} ago. `, why);
  } else if (ingest.state === "failed") {
    showBanner("failed", "The ingest has failed. ", visible(ingest.error ?? "Its log has the reason."));
  } else if (ingest.state === "ended") {
    showBanner("ended", "The ingest has ended. ", "If you start it again, it continues where it stopped.");
  } else if (ingest.brokers_silent_s !== null) {
    setText(live, "No response from brokers");
    setAttribute(live, "data-kind", "lost");
    showBanner("lost", `Brokers have not responded for ${roughly(ingest.brokers_silent_s + now() - ingest.at)}. `, "The ingest keeps asking. Until then, the lag of the tables is unknown.");
  } else {
    banner.hidden = true;
  }
}

function showBanner(kind, title, text) {
  setAttribute(banner, "data-kind", kind);
  if (banner.textContent !== title + text) banner.replaceChildren(h("strong", {}, title), text);
  banner.hidden = false;
}

function showFailure(error) {
  if (error.status === 401) return askForToken();
  Object.assign(state, { starting: error.status === 503, status: error.status, refused: error instanceof TypeError });
  if (error.status === 404 && state.view instanceof TableView) {
    main.replaceChildren(h("div", { class: "empty" }, h("h1", {}, "No such topic"), h("p", {}, `The ingest has no topic ${state.view.title} now: the topic was deleted, or it has another name.`), h("p", {}, h("a", { href: "#/" }, "All tables"))));
    setAttribute(main, "aria-busy", null);
    state.failures = 0;
    return showConnection();
  }
  if (!state.ingest) {
    const text = error.status === 503 ? "The ingest is starting …" : `No data yet: ${visible(error.message)}. The page keeps trying.`;
    showBanner("lost", error.status === 503 ? "" : "Not connected. ", text);
  }
  return showConnection();
}

function askForToken() {
  if (by("token")) return;
  state.locked = true;
  banner.hidden = true;
  setAttribute(document.body, "data-lost", null);
  const input = h("input", { id: "token", type: "password", autocomplete: "off", "aria-describedby": "token-hint", required: true });
  const form = h("form", { class: "token", onsubmit: (event) => {
    event.preventDefault();
    sessionStorage.setItem(TOKEN, input.value.trim());
    navigate();
  } }, h("h1", {}, "Token"), h("label", { for: "token" }, "This page asks for the ingest's token"), input,
  h("p", { id: "token-hint", class: "soft" }, sessionStorage.getItem(TOKEN) ? "This token is wrong: each start of an ingest has a new token, unless --ui-token sets one. " : "", "The token is part of the link that was printed when the ingest started."),
  h("button", { class: "button primary" }, "Open"));
  main.replaceChildren(form);
  setAttribute(main, "aria-busy", null);
  setText(live, "Locked");
  setAttribute(live, "data-kind", "lost");
  input.focus();
}

addEventListener("hashchange", navigate);
document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && poll());
by("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  const isField = event.target.closest?.("input, textarea, select");
  if (isField) {
    if (event.key === "Escape") {
      state.view.key?.(event);
      isField.blur();
    }
    return;
  }
  if (event.key === "?") help.showModal();
  else if (event.key === "1") location.hash = "#/";
  else if (event.key === "2") location.hash = "#/ingest";
  else if (!state.view.key?.(event)) return;
  event.preventDefault();
});

setInterval(() => {
  if (document.visibilityState !== "visible" || !state.ingest || state.locked) return;
  showConnection();
  state.view.tick?.(now);
}, 1_000);

navigate();
