// What the theme leaves open for readers with a keyboard or a screen reader.
const SCROLLED = "pre > code, .md-typeset__scrollwrap, .md-typeset__table, .katex-display";

const mend = () => {
  // Every block of code has a <nav> for its button, which would be one more landmark without a name.
  for (const nav of document.querySelectorAll("nav.md-code__nav")) nav.setAttribute("role", "none");
  for (const part of document.querySelectorAll(SCROLLED)) {
    if (part.scrollWidth > part.clientWidth) part.setAttribute("tabindex", "0");
  }
  // The corner of a table has no title, so it is no header.
  for (const cell of document.querySelectorAll("thead th:empty")) {
    cell.replaceWith(document.createElement("td"));
  }
};
document$.subscribe(() => {
  mend();
  new MutationObserver(mend).observe(document.body, { childList: true, subtree: true });
});
addEventListener("resize", mend);
