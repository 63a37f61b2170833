// Elements. Texts come from topics, which anybody may write to: they are set as text, and never parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** An HTML element with attributes, listeners (onclick) and children, which are elements or texts. */
export const h = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);

/** The same of SVG. */
export const s = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

/** Sets a text only where it has changed, so that a selection stays. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function setAttribute(element, name, value) {
  if (value === null || value === undefined) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, String(value));
}

/** Keeps a list of children in the order of its data, and makes and changes no more of them than it must. */
export class Keyed {
  constructor(parent, create, update) {
    this.parent = parent;
    this.create = create;
    this.update = update;
    this.children = new Map();
  }

  show(entries) {
    const shown = new Set();
    let next = this.parent.firstElementChild;
    for (const [key, value] of entries) {
      shown.add(key);
      let child = this.children.get(key);
      if (!child) {
        child = this.create(value);
        this.children.set(key, child);
      }
      if (child.element === next) next = next.nextElementSibling;
      else this.parent.insertBefore(child.element, next);
      this.update(child, value);
    }
    for (const [key, child] of this.children) {
      if (!shown.has(key)) {
        child.element.remove();
        this.children.delete(key);
      }
    }
  }
}

/** A section with a heading. */
export function section(title, attributes = {}, ...children) {
  const heading = h("h2", {}, title);
  return h("section", attributes, heading, ...children);
}

/** A plain table: columns are [heading, class], rows are lists of texts or elements. */
export function grid(caption, columns, rows) {
  const head = h("tr", {}, ...columns.map(([name, kind]) => h("th", { scope: "col", class: kind }, name)));
  const body = rows.map((row) => h("tr", {}, ...row.map((cell, index) => h("td", { class: columns[index][1] }, cell))));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", { class: "grid" }, h("caption", { class: "hidden" }, caption), h("thead", {}, head), h("tbody", {}, ...body)));
}
