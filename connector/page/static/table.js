// One table: what it holds and how to query it, its schema, its commits, its rejects, its partitions, and why it does not land.

import { grid, h, section, setAttribute, setText } from "./dom.js";
import { NONE, bytes, count, date, duration, exact, percent, plural, rate, time, visible } from "./format.js";
import { TimePlot } from "./plots.js";
import { Badge, age, lagOf, nextAttempt, outlook, withoutCode } from "./tables.js";

const N_SAMPLES = 60;
const COMMITS = 12;
/** Formats whose values can do without a registry. */
const OWN_FORMATS = ["json", "string", "binary"];

/** When the table got its last rows. */
function lastRows({ landed_at: landed, newest_at: newest, state }) {
  if (landed !== null) return `last rows at ${time(landed)}`;
  // The table may have its first commit already, which is looked at before its position moves.
  if (newest === null && state === "committing") return "committing the first rows";
  return newest === null ? "nothing landed yet" : "no new rows yet";
}

/** Replaces an element's content only where the data it is made of have changed. */
class Part {
  constructor(element, make) {
    Object.assign(this, { element, make, made: null });
  }

  show(data) {
    const key = JSON.stringify(data);
    if (key === this.made) return;
    this.made = key;
    this.element.replaceChildren(...[this.make(data)].flat());
  }
}

function offsets(commit) {
  const partitions = Object.keys(commit.end);
  if (!partitions.length) return NONE;
  const texts = partitions.filter((p) => commit.end[p] > (commit.start[p] ?? 0)).map((p) => `${p}: ${exact(commit.start[p] ?? 0)}–${exact(commit.end[p])}`);
  const most = 2;
  return h("span", { title: texts.join("\n") }, texts.slice(0, most).join("   ") + (texts.length > most ? `   +${texts.length - most} more` : "") || NONE);
}

class Queries {
  constructor() {
    this.tabs = h("div", { class: "tabs", role: "group", "aria-label": "Program" });
    this.code = h("code");
    this.copied = h("span", { class: "soft", role: "status" });
    this.copy = h("button", { type: "button", class: "button", onclick: () => this.put() }, "Copy");
    this.element = h("div", { class: "queries" }, h("div", { class: "queries-head" }, this.tabs, this.copied, this.copy), h("pre", { tabindex: "0", "aria-label": "Query" }, this.code));
    this.chosen = null;
    this.part = new Part(this.tabs, (queries) => Object.keys(queries).map((name) =>
      h("button", { type: "button", class: "tab", "data-name": name, onclick: () => this.choose(name) }, name)));
  }

  show(queries) {
    this.queries = queries;
    this.part.show(queries);
    this.choose(this.chosen in queries ? this.chosen : Object.keys(queries)[0]);
  }

  choose(name) {
    if (name !== this.chosen) setText(this.copied, "");
    this.chosen = name;
    for (const tab of this.tabs.children) setAttribute(tab, "aria-pressed", tab.dataset.name === name);
    setText(this.code, visible(this.queries[name] ?? ""));
  }

  async put() {
    const text = this.queries[this.chosen] ?? "";
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Without TLS only this machine's pages may write there: the user copies what is selected.
      getSelection().selectAllChildren(this.code);
      if (!document.execCommand("copy")) {
        setText(this.copied, "selected: copy it with Ctrl-C");
        return;
      }
      getSelection().removeAllRanges();
    }
    setText(this.copied, "copied");
  }
}

function changeText(change) {
  if (change.kind === "added") return ["+", change.column, change.type];
  if (change.kind === "removed") return ["−", change.column, change.type];
  return ["↑", change.column, `${change.from} → ${change.type}`];
}

export class TableView {
  constructor(topic) {
    this.topic = topic;
    this.title = visible(topic);
    const query = `?topic=${encodeURIComponent(topic)}`;
    this.needs = [`/api/table${query}`];
    this.slow = `/api/table/history${query}`;
    this.badge = new Badge();
    this.alias = h("span", { class: "soft" });
    this.figures = h("dl", { class: "figures small" });
    this.trouble = h("section", { class: "error", hidden: true, "aria-labelledby": "error-title" });
    this.outlook = h("span", { class: "outlook" });
    this.lost = h("section", { class: "error lost-readers", "data-state": "retrying", hidden: true, "aria-labelledby": "lost-title" });
    this.limited = h("div", { class: "hold limited-readers" });
    this.rate = new TimePlot("Rows/s", ["rows/s"], N_SAMPLES, rate);
    this.lag = new TimePlot("Lag", ["records"], N_SAMPLES, count);
    this.queries = new Queries();
    const hold = () => h("div", { class: "hold" });
    // A part's first showing takes the place of the sentence.
    const ofLog = () => h("div", { class: "hold" }, h("p", { class: "soft" }, "Reading the table's log …"));
    const parts = { partitions: hold(), facts: hold(), columns: ofLog(), changes: ofLog(), commits: ofLog(), rejects: ofLog() };
    this.ofLog = [parts.columns, parts.changes, parts.commits, parts.rejects];
    this.problem = h("p", { class: "notice", hidden: true, role: "status" });
    this.parts = {
      figures: new Part(this.figures, (entries) => entries.map(([name, value, note]) => h("div", { class: "figure" }, h("dt", {}, name), h("dd", {}, value), h("dd", { class: "note" }, note)))),
      trouble: new Part(this.trouble, (trouble) => this.makeTrouble(trouble)),
      lost: new Part(this.lost, (sentences) => [h("div", { class: "error-head" }, h("h2", { id: "lost-title" }, "The next rows of the table exclude readers")), ...sentences.map((text) => h("p", { class: "error-text" }, visible(text)))]),
      limited: new Part(this.limited, (sentences) => sentences.map((text) => h("p", { class: "soft" }, visible(text)))),
      partitions: new Part(parts.partitions, makePartitions),
      facts: new Part(parts.facts, (entries) => h("dl", { class: "facts" }, ...entries.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, visible(value)))))),
      columns: new Part(parts.columns, makeColumns),
      changes: new Part(parts.changes, makeChanges),
      commits: new Part(parts.commits, makeCommits),
      rejects: new Part(parts.rejects, makeRejects),
    };
    this.rejects = section("Newest rejects", { class: "panel rejects-panel" }, parts.rejects);
    this.element = h("div", { class: "detail" },
      h("p", { class: "crumb" }, h("a", { href: "#/" }, "← Tables")),
      h("div", { class: "title" }, h("h1", {}, visible(topic)), this.alias, this.badge.element),
      this.trouble, this.lost, this.figures, this.problem,
      h("div", { class: "columns" },
        h("div", { class: "column" },
          h("section", { class: "panel plots" }, h("h2", { class: "hidden" }, "Rates"), this.rate.element, this.lag.element),
          section("Partitions", { class: "panel" }, parts.partitions),
          section("Commits", { class: "panel" }, parts.commits),
          this.rejects),
        h("div", { class: "column side" },
          section("Query it", { class: "panel" }, this.queries.element, this.limited),
          section("Columns", { class: "panel" }, parts.columns),
          section("Schema", { class: "panel" }, parts.changes),
          section("Table", { class: "panel" }, parts.facts))));
  }

  show(ingest, [table], now) {
    this.table = table;
    this.badge.show(table);
    setText(this.alias, `→ ${visible(table.table)}`);
    this.parts.figures.show([
      ["Fresh", age(table.freshness_s), lastRows(table)],
      ["Lag", count(table.lag), lagOf(table, now())],
      ["Rows/s", rate(table.rows_per_second), ""],
      ["Rows", count(table.rows), "since the start"],
      ["Rejects", count(table.held_rejects), `${count(table.rejects)} since the start`],
      ["Commits", count(table.commits), "since the start"],
      ["Size", bytes(table.bytes), table.files === null ? "" : plural(table.files, "file")],
    ]);
    this.trouble.hidden = !table.trouble;
    if (table.trouble) this.parts.trouble.show({ ...table.trouble, state: table.state, next_attempt_at: null });
    this.lost.hidden = !table.lost_readers.length;
    this.parts.lost.show(table.lost_readers);
    this.rate.show([table.rates], table.step_s, table.rows_per_second);
    this.lag.show([table.lags], table.step_s, table.lag);
    this.queries.show(table.queries);
    this.parts.partitions.show(table.partitions);
    this.parts.facts.show([
      ["Place", table.place], ["Mode", table.mode], ["Format", table.format], ["Schema id", table.schema_id ?? (OWN_FORMATS.includes(table.format) ? "none: the format has no schema in a registry" : "not known yet")],
      ["Table", table.table], ["Newest record", date(table.newest_at)], ["Work since the start", duration(table.seconds)],
    ]);
    if (this.history || table.held_rejects === 0) this.showRejects();
    this.tick(now);
  }

  showHistory(history, problem) {
    this.problem.hidden = !problem && !history?.problem;
    setText(this.problem, problem || history?.problem || "");
    if (problem && !this.history) for (const part of this.ofLog) part.replaceChildren(h("p", { class: "soft" }, "Not known."));
    if (!history) return;
    this.history = history;
    this.parts.columns.show({ columns: history.columns, whole: history.is_whole });
    this.parts.changes.show({ changes: history.changes, whole: history.is_whole });
    this.parts.commits.show(history.commits);
    this.parts.limited.show(history.limited_readers);
    this.showRejects();
  }

  showRejects() {
    this.parts.rejects.show({ rejects: this.history?.rejects ?? [], held: this.table?.held_rejects ?? 0 });
  }

  tick(now) {
    this.now = now;
    if (this.table?.trouble) setText(this.outlook, this.table.trouble.next_attempt_at === null ? outlook(this.table, now()) : nextAttempt(this.table.trouble, now()));
  }

  makeTrouble(trouble) {
    const title = trouble.state === "retrying" ? "The table could not be landed and is retried; the other tables continue" : "The table is stopped; the other tables continue";
    const since = trouble.since === null ? "" : ` since ${date(trouble.since)}`;
    const tries = trouble.attempts > 1 ? `${count(trouble.attempts)} attempts${since}` : since.trim();
    setAttribute(this.trouble, "data-state", trouble.state);
    return [
      h("div", { class: "error-head" }, h("h2", { id: "error-title" }, title), this.outlook),
      h("p", { class: "error-text" }, visible(withoutCode(trouble.text))),
      h("p", { class: "soft" }, [trouble.code, tries].filter(Boolean).join(" · ")),
    ];
  }

  key(event) {
    if (event.key === "Escape") {
      location.hash = "#/";
      return true;
    }
    return false;
  }

  leave() {}
}

function makePartitions(partitions) {
  if (!partitions.length) return h("p", { class: "soft" }, "The table was not opened yet.");
  const landed = partitions.reduce((sum, each) => sum + (each.landed ?? 0), 0);
  const most = Math.max(...partitions.map((each) => each.landed ?? 0), 1);
  const mean = landed / partitions.length;
  const rows = partitions.map((each) => {
    const share = h("span", { class: "share" }, h("meter", { min: 0, max: most, value: each.landed ?? 0, "aria-label": `Share of partition ${each.partition}` }), landed ? percent((each.landed ?? 0) / landed) : NONE);
    return [String(each.partition), exact(each.position) || NONE, exact(each.log_end) || NONE, count(each.lag), share];
  });
  const skew = landed && partitions.length > 1 ? `The largest partition has ${(most / mean).toFixed(1)} times the mean number of records landed since the start.` : "";
  return [grid("Partitions", [["Partition", "number"], ["Landed to", "number"], ["Log end", "number"], ["Lag", "number"], ["Share of landed", ""]], rows), skew ? h("p", { class: "soft" }, skew) : h("span")];
}

function makeColumns({ columns, whole }) {
  if (!columns.length) return h("p", { class: "soft" }, whole ? "The table does not exist yet." : "The kept part of the log does not show them.");
  const rows = columns.map((column) => [
    h("code", {}, visible(column.name)),
    h("code", { class: "type" }, visible(column.type)),
    column.since === null ? (whole ? "" : "earlier") : h("span", { title: `version ${column.version}` }, date(column.since)),
  ]);
  return grid("Columns", [["Name", "wrap named"], ["Type", "wrap"], ["Since", "when"]], rows);
}

function makeChanges({ changes, whole }) {
  if (!changes.length) return h("p", { class: "soft" }, whole ? "The table does not exist yet." : "The schema has not changed in the kept commits.");
  return h("ol", { class: "line", tabindex: "0", "aria-label": "Changes of the schema" }, ...changes.map((change) => {
    const shown = change.version === 0 ? [] : change.changes;
    const title = change.version === 0 ? `made with ${change.changes.length} columns` : "";
    return h("li", {},
      h("p", {}, h("b", {}, `v${change.version}`), " ", date(change.at), change.schema_id ? h("span", { class: "tag" }, `schema ${visible(change.schema_id)}`) : null),
      title ? h("p", { class: "soft" }, title) : null,
      ...shown.slice(0, 12).map((each) => {
        const [sign, name, type] = changeText(each);
        return h("p", { class: `change ${each.kind}` }, h("b", { "aria-label": each.kind }, sign), h("code", {}, visible(name)), h("code", { class: "type" }, visible(type)));
      }),
      shown.length > 12 ? h("p", { class: "soft" }, `and ${shown.length - 12} more`) : null);
  }));
}

function makeCommits(commits) {
  if (!commits.length) return h("p", { class: "soft" }, "No commit yet.");
  const rows = (some) => some.map((commit) => [
    String(commit.version), h("span", { title: date(commit.at) }, time(commit.at)), commit.operation.toLowerCase(), count(commit.rows),
    count(commit.files), bytes(commit.bytes), offsets(commit),
  ]);
  const columns = [["Version", "number"], ["At", ""], ["Operation", ""], ["Rows", "number"], ["Files", "number"], ["Bytes", "number"], ["Offsets", "offsets"]];
  const table = grid("Commits", columns, rows(commits.slice(0, COMMITS)));
  if (commits.length <= COMMITS) return table;
  const more = h("button", { type: "button", class: "button", onclick: () => {
    table.replaceWith(grid("Commits", columns, rows(commits)));
    more.remove();
  } }, `Show ${count(commits.length - COMMITS)} older`);
  return [table, more];
}

function makeRejects({ rejects, held }) {
  if (!rejects.length) return h("p", { class: "soft" }, held ? `${count(held)} in the table of rejects.` : "None.");
  const more = held > rejects.length ? h("p", { class: "soft of-all" }, `The newest ${rejects.length} of ${exact(held)}; the table of rejects has all of them.`) : null;
  const list = h("ol", { class: "reject-list", tabindex: "0", "aria-label": "Newest rejects" }, ...rejects.map((reject) => {
    const value = reject.size === null ? "a record without a value" : reject.value === null
      ? `a value of ${bytes(reject.size)}; start with --ui-values to see it` : null;
    return h("li", {},
      h("p", { class: "reject-place" }, h("span", {}, `partition ${reject.partition}, offset ${exact(reject.offset)}`), h("span", { class: "soft" }, date(reject.at))),
      h("p", { class: "reject-reason" }, visible(reject.reason)),
      value ? h("p", { class: "soft" }, value) : h("pre", { tabindex: "0", "aria-label": "Value" }, h("code", {}, visible(reject.value))));
  }));
  return more ? [more, list] : list;
}
