"use strict";
// Makes the controls: heads that sort, one field that filters, and buttons that show the rest of long tables.
const SHORT = 20;
const collator = new Intl.Collator("en", { numeric: true });
const number = new Intl.NumberFormat("en");
const element = (name, properties) => Object.assign(document.createElement(name), properties);

const tables = [...document.querySelectorAll("table")].map((table) => {
  const rows = [...table.tBodies[0].rows];
  return { table, rows, body: table.tBodies[0], all: rows.length, isWhole: rows.length <= SHORT, hasNames: table.querySelector(".name") !== null };
});
const status = element("p", { className: "status" });
status.setAttribute("role", "status");
let wanted = "";
let counted = "";

// Rows are compared by their texts, which are read once.
const texts = new Map();
function text(row) {
  let known = texts.get(row);
  if (known === undefined) {
    known = row.textContent.toLowerCase();
    texts.set(row, known);
  }
  return known;
}

// Shows the rows that match, the first ones of a long table; returns how many match.
function show(one) {
  let matching = 0;
  for (const row of one.rows) {
    const matches = wanted === "" || !one.hasNames || text(row).includes(wanted);
    if (matches) matching += 1;
    const isHidden = !matches || !one.isWhole && matching > SHORT;
    if (row.hidden !== isHidden) row.hidden = isHidden;
  }
  const shown = one.isWhole ? matching : Math.min(matching, SHORT);
  const isCut = shown < one.all;
  one.count.textContent = isCut ? `${number.format(shown)} of ${number.format(one.all)} rows` : "";
  one.more.hidden = one.isWhole || matching <= SHORT;
  one.more.textContent = `Show ${wanted === "" ? "all" : "the"} ${number.format(matching)} rows`;
  return matching;
}

function sort(one, head) {
  const column = head.cellIndex;
  const isNumber = head.classList.contains("number");
  const before = head.getAttribute("aria-sort");
  // Numbers begin with the largest.
  const ascends = before === "descending" || before === null && !isNumber;
  const key = isNumber ? (row) => Number(row.cells[column].dataset.v) : (row) => row.cells[column].textContent;
  const keyed = one.rows.map((row) => [key(row), row]);
  const order = isNumber ? ([a], [b]) => a - b : ([a], [b]) => collator.compare(a, b);
  keyed.sort(ascends ? order : (a, b) => order(b, a));
  one.rows = keyed.map(([, row]) => row);
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", ascends ? "ascending" : "descending");
  one.body.append(...one.rows);
  show(one);
  status.textContent = `Sorted by ${head.textContent}, ${ascends ? "ascending" : "descending"}. ${counted}`;
}

// The keyboard stops only at tables that scroll.
const stops = new ResizeObserver((changes) => {
  for (const { target } of changes) target.tabIndex = target.scrollWidth > target.clientWidth ? 0 : -1;
});

for (const one of tables) {
  stops.observe(one.table.parentNode);
  // Steps are a list, in an order with a meaning, and show no heads.
  const heads = one.table.classList.contains("steps") ? [] : one.table.tHead.rows[0].cells;
  for (const head of heads) {
    const button = element("button", { type: "button" });
    button.append(...head.childNodes);
    button.addEventListener("click", () => sort(one, head));
    head.append(button);
  }
  one.count = element("span", { className: "count" });
  one.more = element("button", { type: "button", className: "more" });
  one.more.addEventListener("click", () => {
    one.isWhole = true;
    show(one);
    // The button is gone: the keyboard goes on in the table.
    one.table.parentNode.focus();
  });
  one.more.setAttribute("aria-describedby", one.table.getAttribute("aria-labelledby"));
  const foot = element("p", { className: "foot" });
  foot.append(one.count, one.more);
  one.table.parentNode.after(foot);
  show(one);
}

const named = tables.filter((one) => one.hasNames);
if (named.length > 0) {
  const field = element("input", { type: "search", id: "filter", autocomplete: "off", spellcheck: false });
  const label = element("label", { htmlFor: "filter", textContent: "Filter rows by name" });
  const form = element("search", { className: "filter" });
  form.append(label, field, status);
  named[0].table.closest("section").before(form);
  field.addEventListener("input", () => {
    wanted = field.value.trim().toLowerCase();
    let matching = 0;
    for (const one of named) matching += show(one);
    const all = named.reduce((sum, one) => sum + one.all, 0);
    counted = wanted === "" ? "" : `${number.format(matching)} of ${number.format(all)} rows`;
    status.textContent = counted;
  });
}
