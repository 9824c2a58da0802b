// A figure's numbers as CSV and its drawing as PNG, made in the page.
const DRAWN = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-family", "font-size",
  "font-weight", "text-anchor", "paint-order", "stroke-linejoin", "visibility"];

function csv(rows) {
  const cell = (value) => {
    if (value === null || value === undefined) return "";
    if (typeof value === "number") return String(value);
    // Spreadsheets run a text that begins like a formula.
    const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return `${rows.map((row) => row.map(cell).join(",")).join("\n")}\n`;
}

function download(name, blob) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// A copy that needs no style sheet: what the page's style says becomes attributes.
function standalone(svg) {
  const copy = svg.cloneNode(true);
  const originals = svg.querySelectorAll("*");
  copy.querySelectorAll("*").forEach((node, index) => {
    const style = getComputedStyle(originals[index]);
    for (const name of DRAWN) node.setAttribute(name, style.getPropertyValue(name));
  });
  const { width, height } = svg.viewBox.baseVal;
  const background = getComputedStyle(document.documentElement).getPropertyValue("--panel");
  copy.prepend(draw("rect", { width, height, fill: background.trim() }));
  for (const [name, value] of Object.entries({ width, height, xmlns: SVG })) copy.setAttribute(name, value);
  return copy;
}

async function png(svg) {
  const { width, height } = svg.viewBox.baseVal;
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(standalone(svg)))}`;
  await image.decode();
  const canvas = Object.assign(document.createElement("canvas"), { width: 2 * width, height: 2 * height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => { canvas.toBlob(resolve, "image/png"); });
}

// name, rows and drawing are asked when a button is pressed: a figure changes with its controls.
function saveBar(name, rows, drawing) {
  const file = () => name().replace(/[^\p{L}\p{N}.-]+/gu, "_").replace(/^_|_$/g, "");
  return el("p", { class: "save" }, "Save: ",
    el("button", { type: "button", "data-save": "csv", "aria-label": "Save the numbers of this figure as CSV",
      onclick: () => download(`${file()}.csv`, new Blob([csv(rows())], { type: "text/csv" })) }, "CSV"),
    el("button", { type: "button", "data-save": "png", "aria-label": "Save this figure as PNG",
      onclick: async () => download(`${file()}.png`, await png(drawing())) }, "PNG"));
}
