// What both pages write and draw with. Text from the data only ever becomes text nodes and attributes.
// A page says first what it needs of its numbers: NUMBERS = { plainBelow, apart }.
const page = JSON.parse(document.getElementById("page-data").textContent);
const byId = (id) => document.getElementById(id);
const query = new URLSearchParams(location.search);

// ---- Elements. ----
function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}
const html = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) => filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
const text = (x, y, words, attributes = {}) => svg("text", { x, y, ...attributes }, words);
const line = (x1, y1, x2, y2, className) => svg("line", { x1, y1, x2, y2, class: className });
const setText = (id, words) => { byId(id).textContent = words; };
const pairs = (entries, format = (words) => words) => Object.entries(entries).map(([term, words]) => [html("dt", {}, term), html("dd", {}, format(words))]);
const showFacts = (facts) => byId("facts").append(...pairs(facts).map((pair) => html("div", {}, ...pair)));
function headings(id, names) {
  document.querySelector(`#${id} thead`).append(html("tr", {}, ...names.map((name) => html("th", { scope: "col" }, name))));
}
/** An entry of the key to a drawing: a sample of the marks, and what they mean. */
const keyEntry = (words, ...marks) => html("span", {}, svg("svg", { viewBox: "0 0 26 16", "aria-hidden": "true" }, ...marks), words);

// ---- Numbers. ----
const known = (value) => typeof value === "number";
function number(value, isMeasured = false) {
  if (!known(value)) return "–";
  const size = Math.abs(value), digits = size >= 100 ? 0 : size >= 10 ? 1 : 2;
  if (value !== 0 && (size < 0.01 || size >= NUMBERS.plainBelow)) return value.toPrecision(2);
  return value.toLocaleString("en-US", { minimumFractionDigits: isMeasured ? digits : 0, maximumFractionDigits: digits });
}
const measured = (value) => number(value, true); // 17.0, not 17: figures in a column keep their decimals
const percent = (value) => (known(value) ? `${+(100 * value).toFixed(1)}%` : "–");

// ---- Scales and lines. ----
function span(values) {
  const found = values.filter(known);
  return found.length ? [found.reduce((a, b) => Math.min(a, b)), found.reduce((a, b) => Math.max(a, b))] : [0, 1];
}
function padded([low, high], share) {
  const pad = (high - low || Math.abs(high) || 1) * share;
  return [low - pad, high + pad];
}
/** A scale that hands on null, so that a missing value stays a gap instead of turning into zero. */
function scale([low, high], [from, to], isLog = false) {
  const bend = isLog ? Math.log : (value) => value, width = bend(high) - bend(low) || 1;
  return Object.assign((value) => (known(value) ? from + ((bend(value) - bend(low)) / width) * (to - from) : null), { low, high, isLog });
}
function ticks({ low, high, isLog }, wanted) {
  if (isLog) {
    const powers = [];
    for (let power = Math.ceil(Math.log10(low)); 10 ** power <= high; power++) powers.push(10 ** power);
    if (powers.length > 1) return powers;
  }
  const rough = (high - low || 1) / wanted, unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * [1, 2, 5, 10].find((multiple) => multiple * unit >= rough * 0.999), found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(+(i * step).toPrecision(12));
  return found;
}
function outline(points) {
  let pen = "M", drawn = "";
  for (const [x, y] of points) {
    if (!known(x) || !known(y)) { pen = "M"; continue; }
    drawn += `${pen}${x.toFixed(1)} ${y.toFixed(1)}`;
    pen = "L";
  }
  return drawn;
}
const curve = (points, className) => svg("path", { d: outline(points), class: `mark ${className}` });
function axes(box, x, y, xLabel, yLabel, { wanted = 5, format = (value) => number(value) } = {}) {
  const parts = [];
  for (const value of ticks(y, wanted)) {
    parts.push(line(box.left, y(value), box.right, y(value), "grid"));
    parts.push(text(box.left - 8, y(value) + 4, format(value), { "text-anchor": "end" }));
  }
  for (const value of ticks(x, Math.min(wanted + 1, (box.right - box.left) / NUMBERS.apart))) {
    parts.push(line(x(value), box.bottom, x(value), box.bottom + 5, "grid"));
    parts.push(text(x(value), box.bottom + 19, number(value), { "text-anchor": "middle" }));
  }
  const middle = (box.left + box.right) / 2;
  return [...parts, text(middle, box.bottom + 38, xLabel, { "text-anchor": "middle" }), text(box.left, box.top - 10, yLabel)];
}

// ---- The page: drawings of the right width, and the theme. ----
/** Drawings use real pixels, so that their type keeps its size from phone to wide screen; height is of the width. */
function canvas(node, height, draw) {
  const width = Math.max(node.getBoundingClientRect().width, 200), tall = height(width);
  node.setAttribute("viewBox", `0 0 ${width} ${tall}`);
  node.replaceChildren(...draw(width, tall));
}
/** Draw now, and again whenever the window has another width. */
function keepDrawn(draw) {
  let lastWidth = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== lastWidth) { lastWidth = innerWidth; draw(); } });
  draw();
}
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
function setTheme(name) { document.documentElement.dataset.theme = name; setText("theme", name === "dark" ? "☀ Light" : "☾ Dark"); }
setTheme(query.get("theme") ?? (prefersDark.matches ? "dark" : "light"));
byId("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
