"use strict";
// Sorts a table by the column whose head is chosen; chosen again, the other way round. Numbers begin with the largest.
for (const head of document.querySelectorAll("th")) {
  const sort = () => {
    const body = head.closest("table").tBodies[0];
    const column = head.cellIndex;
    const isNumber = head.classList.contains("number");
    const before = head.getAttribute("aria-sort");
    const ascends = before === "descending" || (before === null && !isNumber);
    const key = (row) => isNumber ? Number(row.cells[column].dataset.v) : row.cells[column].textContent;
    const order = (a, b) => key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0;
    const rows = [...body.rows].sort((a, b) => ascends ? order(a, b) : order(b, a));
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", ascends ? "ascending" : "descending");
    body.append(...rows);
  };
  head.tabIndex = 0;
  head.addEventListener("click", sort);
  head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(); });
}
