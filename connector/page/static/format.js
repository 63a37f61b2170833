// Numbers, sizes and times as texts. A value that is not known is a dash.

export const NONE = "–";
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const short = { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hour12: false };
const day = new Intl.DateTimeFormat(undefined, short);
const year = new Intl.DateTimeFormat(undefined, { ...short, year: "numeric" });

const unknown = (value) => value === null || value === undefined;

function scaled(value, units) {
  let index = 0;
  while (Math.abs(value) >= 999.5 && index < units.length - 1) {
    value /= 1000;
    index += 1;
  }
  const digits = value === 0 || Math.abs(value) >= 99.95 || (index === 0 && Number.isInteger(value)) ? 0 : Math.abs(value) >= 9.995 ? 1 : 2;
  return `${value.toFixed(digits)}${units[index] ? " " + units[index] : ""}`;
}

/** 12,345; 1.23 M from a million on. */
export function count(value) {
  if (unknown(value)) return NONE;
  return Math.abs(value) < 999_999.5 ? whole.format(value) : scaled(value, ["", "k", "M", "G", "T"]);
}

export const exact = (value) => (unknown(value) ? "" : whole.format(value));

export function rate(value) {
  if (unknown(value)) return NONE;
  if (value > 0 && value < 9.95) return value < 0.05 ? "<0.1" : value.toFixed(1);
  return count(value);
}

export const bytes = (value) => (unknown(value) ? NONE : scaled(value, ["B", "kB", "MB", "GB", "TB", "PB"]));

/** A length of time in its largest unit, or its two largest: 8 s, 3 min, 2 h 10 min. */
export function duration(seconds) {
  if (unknown(seconds)) return NONE;
  if (seconds < 10 && seconds > 0) return `${seconds < 0.095 ? "<0.1" : seconds.toFixed(1)} s`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 90) return `${minutes} min`;
  const hours = Math.round(minutes / 60);
  if (hours < 48) return minutes < 600 && minutes % 60 ? `${Math.floor(minutes / 60)} h ${minutes % 60} min` : `${hours} h`;
  return `${Math.round(hours / 24)} d`;
}

/** A length of time that changes while one looks: whole units. */
export function roughly(seconds) {
  if (unknown(seconds)) return NONE;
  return duration(seconds < 10 ? Math.max(0, Math.round(seconds)) : seconds).replace(/^(\d)\.0 s$/, "$1 s");
}

export const ago = (seconds) => (unknown(seconds) ? NONE : seconds < 1 ? "now" : `${roughly(seconds)} ago`);

export const time = (at) => (unknown(at) ? NONE : clock.format(new Date(at * 1000)));

/** A moment as briefly as it is clear: today's without its day, this year's without its year. */
export function date(at) {
  if (unknown(at)) return NONE;
  const then = new Date(at * 1000);
  const today = new Date();
  if (then.toDateString() === today.toDateString()) return clock.format(then);
  return (then.getFullYear() === today.getFullYear() ? day : year).format(then);
}

export const percent = (share) => (unknown(share) ? NONE : `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`);

export const plural = (n, noun) => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;

/** Control characters and those that reorder a text would let a name look like another one. */
export const visible = (text) => String(text).replace(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]/gu, "\ufffd");

/** A state or an activity of the ingest's model as a title. */
export const title = (text) => text.charAt(0).toUpperCase() + text.slice(1);
