// Colours of parts of sequence diagrams that the theme's own rules miss with this version of Mermaid: arrowheads, numbers, "else".
if (typeof mermaid !== "undefined") {
  const initialize = mermaid.initialize.bind(mermaid);
  const line = "var(--md-mermaid-sequence-message-line-color, var(--md-default-fg-color))";
  const css = `
    marker[id$="arrowhead"] path, marker[id$="crosshead"] path { fill: ${line} !important; stroke: ${line} !important; }
    [id$="sequencenumber"], [id$="sequencenumber"] circle { fill: var(--md-mermaid-sequence-number-bg-color) !important; }
    .sequenceNumber { fill: var(--md-mermaid-sequence-number-fg-color) !important; }
    .sectionTitle, .sectionTitle > tspan { fill: var(--md-mermaid-sequence-loop-fg-color) !important; stroke: none; }
  `;
  // On a phone a sequence diagram keeps its size and scrolls: in the width of the screen its text could not be read.
  const useMaxWidth = window.matchMedia("(min-width: 45em)").matches;
  mermaid.initialize = (given) =>
    initialize({ ...given, sequence: { ...given.sequence, useMaxWidth }, themeCSS: (given.themeCSS || "") + css });
}
