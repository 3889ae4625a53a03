// Sorting and filtering of tables. Without scripts the tables stay as they are, in the order of their ranks.
"use strict";

const module_ = new Blob([window.fairbenchDataTables], { type: "text/javascript" });

function matches(row, wanted) {
  return Object.entries(wanted).every(([key, value]) => !value || row.dataset[key] === value);
}

function connect(form, tables) {
  const chosen = () => {
    const wanted = {};
    for (const select of form.querySelectorAll("select")) wanted[select.name] = select.value;
    return wanted;
  };
  const search = form.querySelector("input");
  const count = form.querySelector("output");
  const apply = () => {
    const wanted = chosen();
    let shown = 0;
    let all = 0;
    for (const table of tables) {
      table.search.fixed("filters", (_text, _data, index) => matches(table.row(index).node(), wanted));
      table.search(search.value).draw();
      shown += table.rows({ search: "applied" }).count();
      all += table.rows().count();
    }
    count.textContent = shown === all ? `${all} entries` : `${shown} of ${all} entries`;
  };
  form.addEventListener("input", apply);
  form.addEventListener("reset", () => setTimeout(apply));
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  apply();
}

async function start() {
  const address = URL.createObjectURL(module_);
  const { default: DataTable } = await import(address);
  URL.revokeObjectURL(address);
  const tables = [...document.querySelectorAll("table.sortable")].map(
    (table) =>
      new DataTable(table, {
        autoWidth: false,
        columnDefs: [{ targets: "number", type: "num" }],
        info: false,
        language: { emptyTable: "no entry", zeroRecords: "no entry goes with these filters" },
        layout: { topStart: null, topEnd: null, bottomStart: null, bottomEnd: null },
        order: table.dataset.order ? [[Number(table.dataset.order), "asc"]] : [],
        paging: false,
      }),
  );
  const form = document.querySelector("form.filters");
  if (form) connect(form, tables);
  document.documentElement.dataset.tables = "ready";
}

start();
