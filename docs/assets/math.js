// Formulas are written as $…$ in the pages; the site's Markdown turns them into \(…\) and \[…\].
document$.subscribe(() =>
  renderMathInElement(document.body, {
    delimiters: [
      { left: "\\(", right: "\\)", display: false },
      { left: "\\[", right: "\\]", display: true },
    ],
  }),
);
