// Plots as SVG, in the page's own colours.

import { h, s, setAttribute, setText } from "./dom.js";
import { duration } from "./format.js";

/** Where a path through the known values runs: a list of runs of points. */
function runs(values, n, width, height, most) {
  const found = [];
  let run = [];
  const first = n - values.length;
  values.forEach((value, index) => {
    if (value === null) {
      if (run.length) found.push(run);
      run = [];
    } else {
      const x = n > 1 ? ((first + index) / (n - 1)) * width : width;
      run.push([x, height - (most > 0 ? value / most : 0) * height]);
    }
  });
  if (run.length) found.push(run);
  return found;
}

const at = ([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`;
const line = (run) => `M${run.map(at).join("L")}`;
const area = (run, height) => `M${run[0][0].toFixed(1)},${height}L${run.map(at).join("L")}L${run.at(-1)[0].toFixed(1)},${height}Z`;

/** A small plot of one count, without axes. */
export class Sparkline {
  constructor(n, width = 132, height = 22) {
    Object.assign(this, { n, width, height, drawn: "" });
    this.area = s("path", { class: "plot-area" });
    this.line = s("path", { class: "plot-line" });
    const base = s("path", { class: "plot-base", d: `M0,${height - 0.5}H${width}` });
    this.element = s("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" }, base, this.area, this.line);
  }

  show(values) {
    const key = values.join();
    if (key === this.drawn) return;
    this.drawn = key;
    const most = Math.max(...values.map((value) => value ?? 0), 0);
    const found = most > 0 ? runs(values, this.n, this.width, this.height - 2, most).map((run) => run.map(([x, y]) => [x, y + 1])) : [];
    setAttribute(this.line, "d", found.map(line).join("") || "M0,0");
    setAttribute(this.area, "d", found.map((run) => area(run, this.height)).join("") || "M0,0");
  }
}

/** The next number that is easy to read: few digits. */
function nice(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}

const HEIGHT = 132;
const WIDTH = 600;

/** A plot over time with axes, of one count (filled) or of several (lines), and what it was under the pointer. */
export class TimePlot {
  constructor(title, names, n, format) {
    Object.assign(this, { title, names, n, format, series: names.map(() => []), step: 15, most: 1 });
    this.paths = names.map((_, index) => s("path", { class: `plot-line line-${index}` }));
    this.areas = names.length === 1 ? [s("path", { class: "plot-area" })] : [];
    this.cursor = s("path", { class: "plot-cursor" });
    const lines = [0, 0.5, 1].map((share) => s("path", { class: "plot-grid", d: `M0,${HEIGHT * share}H${WIDTH}` }));
    this.svg = s("svg", { class: "plot", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" }, ...lines, ...this.areas, ...this.paths, this.cursor);
    this.scale = [1, 0.5, 0].map(() => h("span"));
    this.now = h("strong", { class: "plot-now" });
    this.legend = names.map((name, index) => ({ name, value: h("span", { class: "value" }), element: null, index }));
    const legend = names.length > 1 ? [h("ul", { class: "legend" }, ...this.legend.map((entry) => h("li", {}, h("i", { class: `key key-${entry.index}` }), entry.name, entry.value)))] : [];
    this.when = h("span");
    this.element = h("figure", { class: "time-plot" },
      h("figcaption", {}, h("span", {}, title), names.length === 1 ? this.now : null, ...legend),
      h("div", { class: "plot-body" }, h("div", { class: "plot-scale", "aria-hidden": "true" }, ...this.scale), this.svg),
      h("div", { class: "plot-time", "aria-hidden": "true" }, h("span", {}, "15 min ago"), this.when, h("span", {}, "now")));
    this.pointed = null;
    this.svg.addEventListener("pointermove", (event) => {
      const box = this.svg.getBoundingClientRect();
      this.pointed = Math.round(((event.clientX - box.left) / box.width) * (this.n - 1));
      this.point();
    });
    this.svg.addEventListener("pointerleave", () => {
      this.pointed = null;
      this.point();
    });
  }

  show(series, step, current) {
    this.current = current;
    this.series = series;
    this.step = step;
    this.most = nice(Math.max(...series.flat().map((value) => value ?? 0), 0));
    const [top, middle, bottom] = [1, 0.5, 0].map((share) => this.format(this.most * share));
    [top, middle === top ? "" : middle, bottom].forEach((text, index) => setText(this.scale[index], text));
    series.forEach((values, index) => {
      const found = runs(values, this.n, WIDTH, HEIGHT, this.most);
      setAttribute(this.paths[index], "d", found.map(line).join("") || "M0,0");
      if (this.areas[index]) setAttribute(this.areas[index], "d", found.map((run) => area(run, HEIGHT)).join("") || "M0,0");
    });
    const texts = this.names.map((name, index) => `${name} ${this.format(this.valueAt(index, this.n - 1))}`);
    setAttribute(this.svg, "aria-label", `${this.title} of the last quarter of an hour. Now: ${texts.join(", ")}`);
    this.point();
  }

  valueAt(index, position) {
    const values = this.series[index] ?? [];
    return values[position - (this.n - values.length)] ?? null;
  }

  point() {
    const position = this.pointed ?? this.n - 1;
    setAttribute(this.cursor, "d", this.pointed === null ? "M0,0" : `M${(position / (this.n - 1)) * WIDTH},0V${HEIGHT}`);
    setText(this.when, this.pointed === null ? "" : `${duration((this.n - 1 - position) * this.step)} ago`);
    if (this.names.length === 1) setText(this.now, this.format(this.pointed === null ? this.current ?? null : this.valueAt(0, position)));
    for (const entry of this.legend) setText(entry.value, this.format(this.valueAt(entry.index, position)));
  }
}

/** Micro-batches as bars, each of the seconds of its phases. */
export class BatchPlot {
  constructor(phases, n, describe) {
    Object.assign(this, { phases, n, describe, drawn: "" });
    this.bars = s("g");
    const lines = [0, 0.5, 1].map((share) => s("path", { class: "plot-grid", d: `M0,${HEIGHT * share}H${WIDTH}` }));
    this.svg = s("svg", { class: "plot", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" }, ...lines, this.bars);
    this.scale = [1, 0.5, 0].map(() => h("span"));
    this.text = h("p", { class: "plot-text" });
    this.keys = phases.map((phase) => h("li", {}, h("i", { class: `key key-${phase}` }), phase));
    const legend = h("ul", { class: "legend" }, ...this.keys);
    this.element = h("figure", { class: "time-plot wide" }, h("figcaption", {}, h("span", {}, "Seconds of each micro-batch"), legend),
      h("div", { class: "plot-body" }, h("div", { class: "plot-scale", "aria-hidden": "true" }, ...this.scale), this.svg), this.text);
    this.svg.addEventListener("pointermove", (event) => {
      const box = this.svg.getBoundingClientRect();
      this.pointed = Math.floor(((event.clientX - box.left) / box.width) * this.n) - (this.n - this.batches.length);
      this.point();
    });
    this.svg.addEventListener("pointerleave", () => {
      this.pointed = null;
      this.point();
    });
    this.batches = [];
    this.pointed = null;
  }

  show(batches) {
    this.batches = batches.slice(-this.n);
    const key = this.batches.map((batch) => batch.number).join();
    if (key !== this.drawn) {
      this.drawn = key;
      this.keys.forEach((entry, index) => (entry.hidden = !this.batches.some((batch) => this.phases[index] in batch.phases)));
      const most = nice(Math.max(...this.batches.map((batch) => batch.seconds), 0));
      [1, 0.5, 0].forEach((share, index) => setText(this.scale[index], most === 0 ? "" : duration(most * share) === "0 s" ? "0" : duration(most * share)));
      const width = WIDTH / this.n;
      const first = this.n - this.batches.length;
      this.bars.replaceChildren(...this.batches.flatMap((batch, index) => {
        let below = 0;
        return this.phases.map((phase) => {
          const height = ((batch.phases[phase] ?? 0) / most) * HEIGHT;
          below += height;
          return s("rect", { class: `phase phase-${phase}`, x: (first + index) * width + width * 0.1, y: HEIGHT - below, width: width * 0.8, height });
        });
      }));
      setAttribute(this.svg, "aria-label", this.batches.length ? `The last ${this.batches.length} micro-batches. ${this.describe(this.batches.at(-1))}` : "No micro-batch yet");
    }
    this.point();
  }

  point() {
    const batch = this.batches[this.pointed ?? this.batches.length - 1];
    setText(this.text, batch ? this.describe(batch) : "No micro-batch yet.");
  }
}
