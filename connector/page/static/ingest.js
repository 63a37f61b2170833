// The whole: rates, micro-batches and where their time went, processes, settings, brokers, versions.

import { grid, h, section, setText } from "./dom.js";
import { NONE, bytes, count, date, duration, plural, rate, time, title, visible } from "./format.js";
import { BatchPlot, TimePlot } from "./plots.js";
import { link } from "./tables.js";

const N_SAMPLES = 60;
const N_BATCHES = 60;
// Landing is divided where its tasks have reported.
const PHASES = ["planning", "fetching", "writing", "driver", "landing", "committing"];
const PROCESSES = ["driver", "java", "tasks"];
const SLOWEST = 8;

function described(batch) {
  const phases = PHASES.filter((phase) => phase in batch.phases).map((phase) => `${phase} ${duration(batch.phases[phase])}`);
  return `Micro-batch ${batch.number} at ${time(batch.started_at)}: ${plural(batch.rows, "record")} in ${duration(batch.seconds)}: ${phases.join(", ")}.`;
}

function divided(batch) {
  const { landing, ...others } = batch.phases;
  return batch.landing === null ? batch : { ...batch, phases: { ...others, ...batch.landing } };
}

/** What the ingest does at this moment. */
function doing({ activity, running, at }) {
  if (running === null) return `${title(activity)}.`;
  const what = activity === "landing a micro-batch" ? `Micro-batch ${running.number} runs` : title(activity);
  const records = running.planned ? `: ${count(running.done)} of ${plural(running.planned, "record")}` : "";
  return `${what}, for ${duration(Math.max(0, at - running.started_at))}${records}.`;
}

const facts = (entries) => h("dl", { class: "facts" }, ...entries.map(([name, value]) => h("div", {}, h("dt", {}, visible(name)), h("dd", {}, visible(value)))));

export class IngestView {
  title = "Ingest";
  needs = ["/api/tables"];

  constructor() {
    this.records = new TimePlot("Records/s", ["records/s"], N_SAMPLES, rate);
    this.bytes = new TimePlot("Bytes/s", ["from Kafka", "written"], N_SAMPLES, bytes);
    this.batches = new BatchPlot(PHASES, N_BATCHES, described);
    this.cpu = new TimePlot("CPU, cores", PROCESSES, N_SAMPLES, (value) => (value === null ? NONE : value.toFixed(2)));
    this.memory = new TimePlot("Memory", PROCESSES, N_SAMPLES, bytes);
    this.running = h("p", { class: "soft" });
    this.error = h("section", { class: "error", hidden: true });
    this.slowest = h("div");
    this.about = h("div");
    this.settings = h("div");
    this.versions = h("div");
    this.made = {};
    this.element = h("div", { class: "detail" },
      h("h1", { class: "hidden" }, "The ingest"), this.error,
      h("div", { class: "columns even" },
        h("section", { class: "panel" }, h("h2", { class: "hidden" }, "Records"), this.records.element),
        h("section", { class: "panel" }, h("h2", { class: "hidden" }, "Bytes"), this.bytes.element)),
      section("Micro-batches", { class: "panel" }, this.batches.element, this.running),
      h("div", { class: "columns even" },
        h("section", { class: "panel" }, h("h2", { class: "hidden" }, "CPU"), this.cpu.element),
        h("section", { class: "panel" }, h("h2", { class: "hidden" }, "Memory"), this.memory.element)),
      h("div", { class: "columns even" },
        section("Work by table", { class: "panel" }, this.slowest),
        section("About", { class: "panel" }, this.about)),
      h("div", { class: "columns even" },
        section("Settings", { class: "panel" }, this.settings),
        section("Versions", { class: "panel" }, this.versions)));
  }

  show(ingest, [tables]) {
    const { plots } = ingest;
    this.error.hidden = !ingest.error;
    if (ingest.error) this.part("error", this.error, ingest.error, (text) => [h("h2", {}, "The ingest has failed"), h("p", { class: "error-text" }, visible(text))]);
    this.records.show([plots.records_per_second], plots.step_s, ingest.totals.records_per_second);
    this.bytes.show([plots.kafka_bytes_per_second, plots.bytes_per_second], plots.step_s);
    this.batches.show(ingest.micro_batches.map(divided));
    setText(this.running, ingest.state === "running" ? doing(ingest) : "");
    this.cpu.show(PROCESSES.map((name) => plots.cpu[name] ?? []), plots.step_s);
    this.memory.show(PROCESSES.map((name) => plots.memory_bytes[name] ?? []), plots.step_s);
    const busiest = [...tables.tables].sort((one, other) => other.seconds - one.seconds).slice(0, SLOWEST).filter((table) => table.seconds > 0);
    this.part("slowest", this.slowest, busiest.map((table) => [table.topic, table.seconds, table.commits, table.rows]), (rows) => rows.length ? grid("Seconds of work by table",
      [["Topic", "wrap"], ["Seconds", "number"], ["Commits", "number"], ["Per commit", "number"], ["Rows", "number"]],
      rows.map(([topic, seconds, commits, n]) => [h("a", { href: link(topic) }, visible(topic)), seconds.toFixed(1), count(commits), commits ? duration(seconds / commits) : NONE, count(n)])) : h("p", { class: "soft" }, "Nothing has landed since the start."));
    this.part("about", this.about, [ingest.name, ingest.topics, ingest.into, ingest.checkpoint, ingest.registry, ingest.brokers, ingest.started_at], () => facts([
      ["Name", ingest.name], ["Topics", ingest.topics], ["Into", ingest.into], ["Checkpoint", ingest.checkpoint],
      ["Registry", ingest.registry ?? "none"], ["Brokers", ingest.brokers.join(", ")], ["Started", date(ingest.started_at)],
    ]));
    this.part("settings", this.settings, ingest.settings, (settings) => facts(Object.entries(settings)));
    this.part("versions", this.versions, ingest.versions, (versions) => facts(Object.entries(versions)));
  }

  part(name, element, data, make) {
    const key = JSON.stringify(data);
    if (this.made[name] === key) return;
    this.made[name] = key;
    element.replaceChildren(...[make(data)].flat());
  }

  tick() {}

  key(event) {
    if (event.key !== "Escape") return false;
    location.hash = "#/";
    return true;
  }

  leave() {}
}
