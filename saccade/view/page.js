// The attention page: draws one matrix at a time and answers pointer and keyboard. Token text only ever enters the
// document through textContent; nothing is fetched.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const night = matchMedia("(prefers-color-scheme: dark)");
const NAMES = {
  cross: "Cross: target looks at source",
  pooling: "Pooling: what the label is made of",
  encoder: "Encoder self-attention",
  decoder: "Decoder self-attention",
};
const HOW = {
  cross: "How to read this: each row is one token being written; the stronger a cell's colour, the more the model looked at that source token while writing it.",
  pooling: "How to read this: each row is a label, or a sentence that it is made of; the stronger a cell's colour, the more that token counted.",
  encoder: "How to read this: each row is one source token; the stronger a cell's colour, the more it drew on the source token above that column.",
  decoder: "How to read this: each row is one token being written; the stronger a cell's colour, the more the model looked back at that earlier token, <s> being the start.",
};
const KEYS = " Click a row to keep it, Esc to let go, arrow keys to move.";

// What is chosen; `row` and `column` follow the pointer or the keyboard, `pinned` is a row that was clicked.
const chosen = { example: 0, kind: "", layer: 0, head: "mean", row: 0, column: null, pinned: null };
let cells = null; // the matrix on show: {rows, columns, values, width, height}
const unpacked = new Map();

function bytes(text) {
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
}

// Weights were stored as 16-bit whole numbers, low byte first.
function weights(example, kind) {
  const key = example + kind;
  if (!unpacked.has(key)) {
    const raw = bytes(data.examples[example].maps[kind].data);
    const view = new DataView(raw.buffer);
    unpacked.set(key, Float32Array.from({ length: raw.length / 2 }, (_, i) => view.getUint16(2 * i, true) / 65535));
  }
  return unpacked.get(key);
}

function matrix(example, kind, layer, head) {
  const [, heads, rows, columns] = data.examples[example].maps[kind].shape;
  const all = weights(example, kind);
  const size = rows * columns;
  const values = new Float32Array(size);
  const from = head === "mean" ? 0 : head;
  const to = head === "mean" ? heads : head + 1;
  for (let h = from; h < to; h++) {
    const start = (layer * heads + h) * size;
    for (let i = 0; i < size; i++) values[i] += all[start + i] / (to - from);
  }
  return { rows, columns, values };
}

const palettes = { light: bytes(data.palettes.light), dark: bytes(data.palettes.dark) };
function colour(value) {
  const palette = night.matches ? palettes.dark : palettes.light;
  const i = 3 * Math.min(255, Math.floor(value * 256));
  return [palette[i], palette[i + 1], palette[i + 2]];
}
const css = (rgb) => `rgb(${rgb[0]}, ${rgb[1]}, ${rgb[2]})`;
const inkOn = ([r, g, b]) => (0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#10202f" : "#ffffff");

const map = () => data.examples[chosen.example].maps[chosen.kind];
const gold = (row) => (chosen.kind === "cross" && data.examples[chosen.example].gold?.[row]) || [];
const weight = (row, column) => cells.values[row * cells.columns + column];
const rowSum = (row) => {
  let sum = 0;
  for (let c = 0; c < cells.columns; c++) sum += weight(row, c);
  return sum;
};

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function fill(select, options, value) {
  select.replaceChildren(
    ...options.map(([key, text]) => {
      const option = element("option", text);
      option.value = key;
      option.selected = String(key) === String(value);
      return option;
    }),
  );
  select.parentElement.hidden = options.length < 2;
}

const numbered = (count) => Array.from({ length: count }, (_, i) => [i, `${i + 1} of ${count}`]);

// Keep what was chosen where the new example has it too.
function settle() {
  const kinds = Object.keys(data.examples[chosen.example].maps);
  if (!kinds.includes(chosen.kind)) chosen.kind = kinds[0];
  const [layers, heads] = map().shape;
  if (chosen.layer === null || chosen.layer >= layers) chosen.layer = layers - 1;
  if (chosen.head !== "mean" && chosen.head >= heads) chosen.head = "mean";
  fill(byId("example"), data.examples.map((example, i) => [i, example.title || `Example ${i + 1}`]), chosen.example);
  fill(byId("kind"), kinds.map((kind) => [kind, NAMES[kind]]), chosen.kind);
  fill(byId("layer"), numbered(layers), chosen.layer);
  fill(byId("head"), heads === 1 ? [["mean", "1 of 1"]] : [["mean", `mean of ${heads}`], ...numbered(heads)], chosen.head);
}

function sharp(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  return pen;
}

// The cells are as large as the window lets them be, within reason; labels stand upright only where they must.
function measure() {
  const pen = byId("marks").getContext("2d");
  pen.font = `650 13px ${getComputedStyle(document.body).fontFamily}`;
  const widest = (tokens) => Math.max(...tokens.map((token) => pen.measureText(token).width));
  const room = byId("stage").clientWidth;
  const labels = Math.min(Math.ceil(widest(map().rows)) + 12, Math.max(72, room * 0.3));
  const width = Math.floor(Math.max(18, Math.min(72, (room - labels - 2) / cells.columns)));
  const height = Math.max(18, Math.min(40, width, Math.floor(900 / cells.rows)));
  return { labels, width, height, upright: widest(map().columns) + 4 > width };
}

function drawPicture() {
  const { labels, width, height, upright } = measure();
  cells.width = width;
  cells.height = height;
  const columns = byId("columns");
  columns.className = upright ? "upright" : "";
  columns.replaceChildren(
    ...map().columns.map((token) => {
      const label = element("span", token);
      label.style.width = `${width}px`;
      label.style.lineHeight = upright ? `${width}px` : "";
      return label;
    }),
  );
  byId("rows").style.width = `${labels}px`;
  byId("rows").replaceChildren(
    ...map().rows.map((token, row) => {
      const label = element("span");
      label.append(element("b", token));
      label.style.height = `${height}px`;
      label.addEventListener("click", () => pin(row));
      return label;
    }),
  );
  const pen = sharp(byId("heat"), width * cells.columns, height * cells.rows);
  for (let r = 0; r < cells.rows; r++) {
    for (let c = 0; c < cells.columns; c++) {
      pen.fillStyle = css(colour(weight(r, c)));
      pen.fillRect(c * width, r * height, width - 1, height - 1); // a thin gap, so that cells can be counted
    }
  }
  byId("picture").setAttribute("aria-label", `${NAMES[chosen.kind]}: ${cells.rows} rows, ${cells.columns} columns`);
  byId("how").textContent = HOW[chosen.kind] + KEYS;
  byId("gold-key").hidden = chosen.kind !== "cross" || !data.examples[chosen.example].gold;
  const scale = byId("scale").getContext("2d");
  for (let i = 0; i < 256; i++) {
    scale.fillStyle = css(colour(i / 255));
    scale.fillRect(i, 0, 1, 1);
  }
}

function drawMarks() {
  const { width, height } = cells;
  const pen = sharp(byId("marks"), width * cells.columns, height * cells.rows);
  const style = getComputedStyle(document.documentElement);
  const box = (row, column, span, line, inset) => {
    pen.lineWidth = line;
    pen.strokeRect(column * width + inset, row * height + inset, span * width - 1 - 2 * inset, height - 1 - 2 * inset);
  };
  pen.strokeStyle = style.getPropertyValue("--gold");
  for (let r = 0; r < cells.rows; r++) for (const c of gold(r)) box(r, c, 1, 2, 2);
  pen.strokeStyle = style.getPropertyValue("--mark");
  const shown = chosen.pinned ?? chosen.row;
  box(shown, 0, cells.columns, chosen.pinned === null ? 1 : 2, chosen.pinned === null ? 0.5 : 1);
  if (chosen.column !== null) box(chosen.row, chosen.column, 1, 2, 1);
}

function drawRow() {
  const row = chosen.pinned ?? chosen.row;
  const token = map().rows[row];
  const title = byId("row-title");
  const verb = { encoder: "Reading ", pooling: "Choosing " }[chosen.kind] ?? "Writing ";
  const rest = ` (row ${row + 1} of ${cells.rows}${chosen.pinned === null ? "" : ", kept"}), attention sums to ${rowSum(row).toFixed(2)}:`;
  title.replaceChildren(verb, element("strong", token), rest);
  const right = gold(row);
  byId("chips").replaceChildren(
    ...map().columns.map((source, c) => {
      const chip = element("span", source, right.includes(c) ? "gold" : "");
      const back = colour(weight(row, c));
      chip.style.background = css(back);
      chip.style.color = inkOn(back);
      chip.title = weight(row, c).toFixed(3);
      return chip;
    }),
  );
  [...byId("rows").children].forEach((label, r) => label.classList.toggle("on", r === row || r === chosen.row));
  [...byId("columns").children].forEach((label, c) => label.classList.toggle("on", c === chosen.column));
  byId("readout").textContent = chosen.column === null ? "" : told(chosen.row, chosen.column);
  drawMarks();
}

function told(row, column) {
  const known = gold(row).includes(column) ? ", known alignment" : "";
  return `“${map().rows[row]}” → “${map().columns[column]}”  ${weight(row, column).toFixed(3)}${known}`;
}

function drawOverview() {
  const [layers, heads, rows, columns] = map().shape;
  byId("overview").hidden = layers * heads < 2;
  const thumbs = byId("thumbs");
  thumbs.style.gridTemplateColumns = `auto repeat(${heads}, auto)`;
  const zoom = Math.max(1, Math.min(8, Math.floor(84 / Math.max(rows, columns))));
  const made = [element("span"), ...numbered(heads).map(([h]) => element("span", `head ${h + 1}`, "head"))];
  for (let layer = 0; layer < layers; layer++) {
    made.push(element("span", `layer ${layer + 1}`));
    for (let head = 0; head < heads; head++) made.push(thumb(layer, head, rows, columns, zoom));
  }
  thumbs.replaceChildren(...made);
}

function thumb(layer, head, rows, columns, zoom) {
  const button = element("button");
  const on = layer === chosen.layer && (head === chosen.head || map().shape[1] === 1);
  button.type = "button";
  button.setAttribute("aria-label", `Layer ${layer + 1}, head ${head + 1}`);
  button.setAttribute("aria-pressed", String(on));
  const canvas = element("canvas");
  canvas.width = columns;
  canvas.height = rows;
  canvas.style.width = `${columns * zoom}px`;
  canvas.style.height = `${rows * zoom}px`;
  const image = new ImageData(columns, rows);
  matrix(chosen.example, chosen.kind, layer, head).values.forEach((value, i) => image.data.set([...colour(value), 255], 4 * i));
  canvas.getContext("2d").putImageData(image, 0, 0);
  button.append(canvas);
  button.addEventListener("click", () => {
    Object.assign(chosen, { layer, head: map().shape[1] === 1 ? "mean" : head });
    show();
    thumbs().find((other) => other.getAttribute("aria-pressed") === "true")?.focus({ preventScroll: true });
  });
  return button;
}
const thumbs = () => [...byId("thumbs").querySelectorAll("button")];

// Built only while it is open: a table of a long pair has thousands of cells.
function drawTable() {
  if (!byId("numbers").open) return byId("table").replaceChildren();
  const table = element("table");
  const top = table.createTHead().insertRow();
  top.append(element("th", ""), ...map().columns.map((token) => element("th", token)), element("th", "sum"));
  const body = table.createTBody();
  map().rows.forEach((token, r) => {
    const line = body.insertRow();
    line.append(element("th", token));
    for (let c = 0; c < cells.columns; c++) line.append(element("td", weight(r, c).toFixed(3)));
    line.append(element("td", rowSum(r).toFixed(3), "sum"));
  });
  for (const head of table.querySelectorAll("thead th")) head.scope = "col";
  for (const head of table.querySelectorAll("tbody th")) head.scope = "row";
  byId("table").replaceChildren(table);
}

function show() {
  settle();
  cells = matrix(chosen.example, chosen.kind, chosen.layer, chosen.head);
  chosen.row = Math.min(chosen.row, cells.rows - 1);
  if (chosen.pinned !== null && chosen.pinned >= cells.rows) chosen.pinned = null;
  if (chosen.column !== null && chosen.column >= cells.columns) chosen.column = null;
  byId("tip").hidden = true;
  drawPicture();
  drawRow();
  drawOverview();
  drawTable();
}

function pin(row) {
  Object.assign(chosen, { row, pinned: chosen.pinned === row ? null : row });
  drawRow();
}

function under(event) {
  const box = byId("heat").getBoundingClientRect();
  const row = Math.floor((event.clientY - box.top) / cells.height);
  const column = Math.floor((event.clientX - box.left) / cells.width);
  return row >= 0 && row < cells.rows && column >= 0 && column < cells.columns ? { row, column } : null;
}

function hover(event) {
  const at = under(event);
  const tip = byId("tip");
  tip.hidden = !at;
  if (!at) return;
  Object.assign(chosen, at);
  drawRow();
  tip.textContent = told(at.row, at.column);
  const left = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8);
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, event.clientY - tip.offsetHeight - 12)}px`;
}

const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
function key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const within = (value, count) => Math.max(0, Math.min(count - 1, value));
  chosen.row = chosen.pinned ?? chosen.row; // the keys move the row that is kept, if one is
  if (event.key in STEPS) {
    const [down, right] = STEPS[event.key];
    chosen.row = within(chosen.row + down, cells.rows);
    if (right) chosen.column = within((chosen.column ?? (right > 0 ? -1 : cells.columns)) + right, cells.columns);
  } else if (event.key === "Home") chosen.row = 0;
  else if (event.key === "End") chosen.row = cells.rows - 1;
  else if (event.key === "Enter" || event.key === " ") chosen.pinned = chosen.pinned === null ? chosen.row : null;
  else if (event.key === "Escape") chosen.pinned = null;
  else return;
  if (chosen.pinned !== null) chosen.pinned = chosen.row;
  event.preventDefault();
  drawRow();
  byId("rows").children[chosen.row].scrollIntoView({ block: "nearest", inline: "nearest" });
}

const picture = byId("picture");
picture.addEventListener("pointermove", hover);
picture.addEventListener("pointerleave", () => {
  chosen.column = null;
  byId("tip").hidden = true;
  drawRow();
});
picture.addEventListener("click", (event) => {
  const at = under(event);
  if (at) pin(at.row);
});
picture.addEventListener("keydown", key);
byId("controls").addEventListener("change", (event) => {
  const value = event.target.value;
  chosen[event.target.id] = event.target.id === "kind" || value === "mean" ? value : Number(value);
  if (event.target.id === "example") Object.assign(chosen, { row: 0, pinned: null });
  show();
});
byId("controls").addEventListener("submit", (event) => event.preventDefault());
byId("numbers").addEventListener("toggle", drawTable);
night.addEventListener("change", show);
let lastWidth = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth === lastWidth) return; // a phone's address bar sliding away is no reason to draw again
  lastWidth = window.innerWidth;
  show();
});
chosen.layer = null; // the top layer first
show();
