// All tables: figures of the whole, a filter, and a row for each table, those in trouble first.

import { Keyed, h, setAttribute, setText } from "./dom.js";
import { NONE, bytes, count, duration, exact, plural, rate, roughly, title, visible } from "./format.js";
import { Sparkline } from "./plots.js";

const N_SAMPLES = 60;
const TROUBLES = ["stopped", "retrying"];
const COLUMNS = [
  ["state", "State"],
  ["topic", "Topic"],
  ["freshness_s", "Fresh", "How long ago the table last held every record of its topic"],
  ["lag", "Lag", "Records that the table lacks, and the time to catch up at the current rate"],
  ["rows_per_second", "Rows/s", "Records read or landed per second: now, and over the last quarter of an hour"],
  ["rows", "Rows", "Rows landed since the start"],
  ["rejects", "Rejects", "Records in the table of rejects, which could not be read or landed"],
  ["files", "Files", "Files of the table"],
  ["bytes", "Size", "Size of the table's files"],
  ["schema_id", "Schema", "The registry id of the newest schema used"],
];

export const link = (topic) => `#/table/${encodeURIComponent(topic)}`;

/** A state as text with a colour. */
export class Badge {
  constructor() {
    this.element = h("span", { class: "badge" });
  }

  show({ state, share }) {
    setText(this.element, state === "landing" && share !== null ? `Landing ${Math.round(share * 100)} %` : title(state));
    setAttribute(this.element, "data-state", state);
  }
}

/** An error's sentence without its code in front. */
export const withoutCode = (text) => text.replace(/^\[[A-Z0-9_.]+\] /, "");

/** What a table in trouble waits for. */
export function outlook(table, now) {
  const trouble = table.trouble;
  if (!trouble) return "";
  if (table.state === "retrying" && trouble.next_attempt_at !== null) return nextAttempt(trouble, now);
  return trouble.since === null ? "" : `since ${roughly(now - trouble.since)}`;
}

export function nextAttempt(trouble, now) {
  const left = trouble.next_attempt_at - now;
  return left <= 0.5 ? "trying again now" : `trying again in ${roughly(left)}`;
}

class Figure {
  constructor(name, more = null) {
    this.value = h("dd");
    this.note = h("dd", { class: "note" });
    this.element = h("div", { class: "figure" }, h("dt", {}, name), this.value, more ? h("dd", { class: "mini" }, more) : this.note);
  }

  show(value, note = "", kind = "") {
    setText(this.value, value);
    setText(this.note, note);
    setAttribute(this.note, "data-kind", kind || null);
  }
}

class Summary {
  constructor() {
    this.recordsPlot = new Sparkline(N_SAMPLES, 132, 26);
    this.bytesPlot = new Sparkline(N_SAMPLES, 132, 26);
    this.tables = new Figure("Tables");
    this.freshness = new Figure("Fresh");
    this.lag = new Figure("Lag");
    this.rows = new Figure("Rows");
    this.records = new Figure("Records/s", this.recordsPlot.element);
    this.bytes = new Figure("Written/s", this.bytesPlot.element);
    this.rejects = new Figure("Rejects");
    const figures = [this.tables, this.freshness, this.lag, this.rows, this.records, this.bytes, this.rejects];
    this.element = h("dl", { class: "figures" }, ...figures.map((figure) => figure.element));
  }

  show({ totals, plots, running, brokers_silent_s: silent }) {
    const states = totals.states;
    const bad = TROUBLES.filter((state) => states[state]).map((state) => `${count(states[state])} ${state}`);
    const well = silent !== null ? "as before" : states.starting ? `${count(states.starting)} starting` : totals.tables ? "all well" : "";
    this.tables.show(count(totals.tables), bad.join(", ") || well, states.stopped ? "stopped" : states.retrying ? "retrying" : well === "all well" ? "good" : "");
    const unknown = totals.tables_of_unknown_freshness;
    this.freshness.show(age(totals.oldest_s), totals.oldest_s === null ? "not known yet" : unknown ? `oldest of ${plural(totals.tables - unknown, "table")}` : "of the oldest table");
    this.lag.show(count(totals.lag), silent !== null && totals.lag !== null ? "at the last response" : lagOfAll(totals, running));
    this.rows.show(count(totals.rows), "since the start");
    this.records.show(rate(totals.records_per_second));
    this.recordsPlot.show(plots.records_per_second);
    this.bytes.show(totals.bytes_per_second === null ? NONE : bytes(totals.bytes_per_second));
    this.bytesPlot.show(plots.bytes_per_second);
    this.rejects.show(count(totals.held_rejects), totals.held_rejects ? `of ${plural(totals.tables_with_rejects, "table")}` : "none", totals.held_rejects ? "retrying" : "");
  }
}

export const age = (seconds) => (seconds === null ? NONE : seconds < 1 ? "now" : roughly(seconds));

/** What becomes of the records that all tables lack together. */
function lagOfAll({ lag, lag_in_trouble: troubled, catch_up_s: seconds }, running) {
  if (lag === null) return "not known yet";
  if (lag === 0) return "caught up";
  if (lag === troubled) return "of tables in trouble";
  if (seconds === null) return running ? "in a micro-batch" : "yet to be landed";
  return `${duration(seconds)} to catch up`;
}

/** What becomes of the records that a table lacks. */
export function lagOf({ lag, state, share, catch_up_s: seconds, waits_until: until }, now) {
  if (lag === null) return "not known yet";
  if (TROUBLES.includes(state)) return lag ? "when it lands again" : "caught up";
  if (state === "waiting") return waits({ lag, waits_until: until }, now);
  if (lag === 0) return "caught up";
  if (seconds !== null) return `${duration(seconds)} to catch up`;
  return share === null ? "yet to be landed" : "in the micro-batch";
}

/** What a topic waits for. */
export function waits({ lag, waits_until: until }, now) {
  if (until !== null) return `up to ${roughly(Math.max(0, until - now))} more`;
  return lag ? "for more records" : "for its first records";
}

class Row {
  constructor(table) {
    this.topic = table.topic;
    this.badge = new Badge();
    this.link = h("a", { href: link(table.topic), class: "name" }, visible(table.topic));
    this.mode = h("span", { class: "tag" });
    this.name = h("span", { class: "alias" });
    this.spark = new Sparkline(N_SAMPLES);
    this.cells = Object.fromEntries(COLUMNS.map(([key, label]) => [key, h("div", { role: "cell", class: `cell ${key}`, "data-label": label })]));
    this.cells.state.append(this.badge.element);
    this.waits = h("span", { class: "waits" });
    this.cells.topic.append(this.link, this.name, this.mode, this.waits);
    this.lag = h("span");
    this.catchUp = h("span", { class: "soft" });
    this.cells.lag.append(this.lag, this.catchUp);
    this.rate = h("span", { class: "rate" });
    this.cells.rows_per_second.append(this.spark.element, this.rate);
    this.reason = h("span", { class: "reason" });
    this.outlook = h("span", { class: "outlook" });
    this.trouble = h("div", { role: "cell", class: "cell trouble", hidden: true }, this.reason, this.outlook);
    this.element = h("div", { role: "row", class: "row" }, ...Object.values(this.cells), this.trouble);
    this.element.addEventListener("click", (event) => {
      if (!event.target.closest("a") && !String(getSelection())) location.hash = link(this.topic);
    });
  }

  show(table, now) {
    this.badge.show(table);
    setText(this.name, `→\u00a0${visible(table.table)}`);
    setText(this.mode, table.mode === "append" ? "" : table.mode);
    setText(this.cells.freshness_s, age(table.freshness_s));
    setText(this.lag, count(table.lag));
    setText(this.catchUp, table.lag && table.catch_up_s !== null ? duration(table.catch_up_s) : "");
    setText(this.rate, rate(table.rows_per_second));
    this.spark.show(table.rates);
    setText(this.cells.rows, count(table.rows));
    setAttribute(this.cells.rows, "title", exact(table.rows));
    setText(this.cells.rejects, count(table.held_rejects));
    setAttribute(this.cells.rejects, "data-kind", table.held_rejects ? "retrying" : null);
    setText(this.cells.files, count(table.files));
    setText(this.cells.bytes, bytes(table.bytes));
    setText(this.cells.schema_id, table.schema_id === null ? NONE : visible(table.schema_id));
    setAttribute(this.cells.schema_id, "title", table.schema_id);
    setAttribute(this.cells.lag, "title", exact(table.lag));
    setAttribute(this.element, "data-state", table.state);
    this.trouble.hidden = !table.trouble && !table.lost_readers.length;
    setAttribute(this.trouble, "data-kind", table.trouble ? null : "lost-readers");
    setText(this.waits, table.state === "waiting" ? waits(table, now) : "");
    if (table.trouble) {
      setText(this.reason, visible(withoutCode(table.trouble.text)));
      setText(this.outlook, outlook(table, now));
    } else {
      setText(this.reason, visible(table.lost_readers.join(" ")));
      setText(this.outlook, table.lost_readers.length ? "with its next rows" : "");
    }
  }
}

export class TablesView {
  title = "Tables";
  needs = ["/api/tables"];

  constructor() {
    this.summary = new Summary();
    this.filter = h("input", { type: "search", id: "filter", placeholder: "Filter by topic, table or reason", autocomplete: "off", spellcheck: "false", "aria-label": "Filter tables", oninput: () => this.draw() });
    this.chips = h("div", { class: "chips", role: "group", "aria-label": "States" });
    this.state = "";
    this.chipOf = new Map();
    this.shown = h("p", { class: "shown", role: "status" });
    this.sort = null;
    this.heads = Object.fromEntries(COLUMNS.map(([key, label, meaning]) => {
      const button = h("button", { type: "button", title: meaning, onclick: () => this.sortBy(key) }, label);
      return [key, h("div", { role: "columnheader", class: `cell ${key}` }, button)];
    }));
    this.body = h("div", { role: "rowgroup" });
    this.rows = new Keyed(this.body, (table) => new Row(table), () => {});
    this.seen = new Set();
    this.empty = h("div", { class: "empty", hidden: true });
    // Rows that are not on the screen are drawn when they come there.
    this.observer = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (entry.isIntersecting) this.seen.add(entry.target);
        else this.seen.delete(entry.target);
      }
      this.drawRows();
    }, { rootMargin: "300px" });
    this.table = h("div", { role: "table", class: "tables", "aria-label": "Tables of this ingest" },
      h("div", { role: "rowgroup" }, h("div", { role: "row", class: "row heads" }, ...Object.values(this.heads))), this.body);
    this.skeleton = h("div", { class: "skeleton", "aria-hidden": "true" }, ...Array.from({ length: 8 }, () => h("i")));
    this.table.hidden = true;
    this.element = h("div", {}, h("h1", { class: "hidden" }, "Tables"), this.summary.element,
      h("div", { class: "tools" }, this.filter, this.chips, this.shown), this.skeleton, this.table, this.empty);
    this.now = () => 0;
  }

  show(ingest, [document], now) {
    this.ingest = ingest;
    this.document = document;
    this.now = now;
    this.states = Object.keys(ingest.totals.states);
    this.summary.show(ingest);
    this.skeleton.hidden = true;
    this.draw();
  }

  tick(now) {
    this.now = now;
    this.drawRows();
  }

  sortBy(key) {
    if (this.sort?.key === key) this.sort = this.sort.down ? { key, down: false } : null;
    else this.sort = { key, down: key !== "topic" && key !== "state" };
    for (const [name, head] of Object.entries(this.heads)) {
      setAttribute(head, "aria-sort", this.sort?.key === name ? (this.sort.down ? "descending" : "ascending") : null);
    }
    this.draw();
  }

  draw() {
    if (!this.document) return;
    const tables = this.document.tables;
    this.drawChips(tables);
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = tables.filter((table) => this.matches(table, words));
    const sort = this.sort;
    if (sort) {
      const key = sort.key === "rejects" ? "held_rejects" : sort.key;
      const value = (table) => (key === "state" ? this.states.indexOf(table.state) : table[key]);
      chosen.sort((one, other) => {
        const [a, b] = [value(one), value(other)];
        if (a === b) return 0;
        if (a === null) return 1;
        if (b === null) return -1;
        const order = typeof a === "string" ? a.localeCompare(b, undefined, { numeric: true }) : a - b;
        return sort.down ? -order : order;
      });
    }
    this.byTopic = new Map(chosen.map((table) => [table.topic, table]));
    const before = new Set(this.rows.children.values());
    this.rows.show(this.byTopic);
    for (const row of this.rows.children.values()) if (!before.has(row)) this.observer.observe(row.element);
    for (const row of before) {
      if (!this.byTopic.has(row.topic)) {
        this.observer.unobserve(row.element);
        this.seen.delete(row.element);
      }
    }
    for (const row of this.rows.children.values()) setAttribute(row.element, "data-trouble", TROUBLES.includes(this.byTopic.get(row.topic).state) ? "" : null);
    setText(this.shown, chosen.length === tables.length ? "" : `${count(chosen.length)} of ${plural(tables.length, "table")}`);
    this.drawEmpty(tables, chosen);
    this.drawRows();
  }

  matches(table, words) {
    if (this.state === "rejects" ? !table.held_rejects : this.state && table.state !== this.state) return false;
    const text = `${table.topic} ${table.table} ${table.mode} ${table.format} ${table.trouble?.text ?? ""}`.toLowerCase();
    return words.every((word) => text.includes(word));
  }

  drawRows() {
    if (!this.byTopic) return;
    for (const row of this.rows.children.values()) {
      const table = this.byTopic.get(row.topic);
      if (this.seen.has(row.element)) row.show(table, this.now());
      else if (!row.begun) row.show({ ...table, rates: [] }, this.now());
      row.begun = true;
    }
  }

  drawChips(tables) {
    const counts = new Map([["", tables.length], ...this.states.map((state) => [state, 0]), ["rejects", 0]]);
    for (const table of tables) {
      counts.set(table.state, counts.get(table.state) + 1);
      if (table.held_rejects) counts.set("rejects", counts.get("rejects") + 1);
    }
    for (const [state, n] of counts) {
      if (!this.chipOf.has(state)) {
        const number = h("b");
        const label = state === "" ? "All" : state === "rejects" ? "With rejects" : title(state);
        const chip = h("button", { type: "button", class: "chip", "data-state": state || null, onclick: () => this.choose(state) }, label, number);
        this.chipOf.set(state, { chip, number });
        this.chips.append(chip);
      }
      const { chip, number } = this.chipOf.get(state);
      setText(number, count(n));
      chip.hidden = n === 0 && state !== "" && state !== this.state;
      setAttribute(chip, "aria-pressed", state === this.state);
    }
  }

  choose(state) {
    this.state = state === this.state ? "" : state;
    this.draw();
  }

  drawEmpty(tables, chosen) {
    this.table.hidden = chosen.length === 0;
    this.empty.hidden = chosen.length > 0;
    if (chosen.length) return;
    const [title, text] = tables.length
      ? ["No table matches.", "Clear the filter with Esc."]
      : [`No topic matches ${visible(this.ingest.topics)} yet.`, "A new topic becomes a table without a restart."];
    this.empty.replaceChildren(h("h2", {}, title), h("p", {}, text));
  }

  /** What a key does; whether it did something. */
  key(event) {
    if (event.key === "/") {
      this.filter.focus();
      this.filter.select();
      return true;
    }
    if (event.key === "Escape" && (this.filter.value || this.state)) {
      this.filter.value = "";
      this.state = "";
      this.draw();
      return true;
    }
    if (event.key === "j" || event.key === "k") {
      const links = [...this.body.querySelectorAll("a.name")];
      const index = links.indexOf(document.activeElement);
      const next = index < 0 ? 0 : index + (event.key === "j" ? 1 : -1);
      links[Math.min(links.length - 1, Math.max(0, next))]?.focus();
      return true;
    }
    return false;
  }

  leave() {
    this.observer.disconnect();
  }
}
