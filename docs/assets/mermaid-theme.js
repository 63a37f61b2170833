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
  mermaid.initialize = (given) =>
    initialize({ ...given, themeCSS: (given.themeCSS || "") + css });
}
