"use strict";

// Sorting by the buttons in a table's head, and choosing rows by the selects above it. Without this
// script every row is shown, in the order of the report.

const collator = new Intl.Collator("en", { numeric: true });

function said(box, text) {
  box.querySelector(".told").textContent = text;
}

function countOf(box) {
  const rows = [...box.querySelectorAll("tbody tr")];
  const shown = rows.filter((row) => !row.hidden).length;
  return `${shown} of ${rows.length} rows shown`;
}

function compare(one, other, numeric, direction) {
  const [a, b] = [one.dataset.value, other.dataset.value];
  // What has no value comes last, whichever way the column is sorted.
  if (a === undefined || b === undefined) return (a === undefined) - (b === undefined);
  const difference = numeric ? Number(a) - Number(b) : collator.compare(a, b);
  return direction === "descending" ? -difference : difference;
}

function sort(box, head, place) {
  const direction = head.getAttribute("aria-sort") === "descending" ? "ascending" : "descending";
  for (const other of box.querySelectorAll("th[aria-sort]")) other.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", direction);
  const numeric = head.classList.contains("number");
  const body = box.querySelector("tbody");
  const rows = [...body.rows];
  rows.sort((one, other) => compare(one.cells[place], other.cells[place], numeric, direction));
  body.append(...rows);
  said(box, `Sorted by ${head.dataset.heading}, ${direction}. ${countOf(box)}.`);
}

function choose(box) {
  const selects = [...box.querySelectorAll("select")];
  const heads = [...box.querySelectorAll("thead th")];
  const wanted = selects
    .filter((select) => select.value)
    .map((select) => [
      heads.findIndex((head) => head.dataset.heading === select.dataset.column),
      select.value,
    ]);
  for (const row of box.querySelectorAll("tbody tr")) {
    row.hidden = wanted.some(([place, value]) => row.cells[place].dataset.value !== value);
  }
}

for (const box of document.querySelectorAll(".table")) {
  [...box.querySelectorAll("thead th")].forEach((head, place) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => sort(box, head, place));
  });
  const filters = box.querySelector(".filters");
  if (filters) {
    filters.hidden = false;
    for (const select of filters.querySelectorAll("select")) {
      select.value = select.dataset.first;
      select.addEventListener("change", () => {
        choose(box);
        said(box, `${countOf(box)}.`);
      });
    }
    choose(box);
  }
}

// A link into a folded part opens it.
function unfold() {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  for (let fold = target && target.closest("details"); fold; fold = fold.parentElement.closest("details")) {
    fold.open = true;
  }
}
addEventListener("hashchange", unfold);
unfold();
