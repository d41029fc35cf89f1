// The matrix as a table, and moving about in it by keyboard.

const BAD = new Set(["fail", "error", "xpass", "timeout", "crash", "protocol-error"]);

// How many results there are of each verdict.
function tally(cases, implementations) {
  const counts = {};
  for (const implementation of implementations)
    for (const { id } of cases) {
      const verdict = implementation.results[id]?.verdict;
      if (verdict) counts[verdict] = (counts[verdict] ?? 0) + 1;
    }
  return counts;
}

const sum = (counts, wanted) => Object.entries(counts).reduce((total, [verdict, number]) => total + (wanted(verdict) ? number : 0), 0);
const askedOf = (counts) => sum(counts, (verdict) => verdict !== "unsupported");

// In words: "22 of 24 passed, 2 fail; 3 unsupported".
function counted(counts) {
  const asked = askedOf(counts);
  const other = Object.keys(VERDICTS).filter((verdict) => counts[verdict] && verdict !== "pass" && verdict !== "unsupported");
  const told = asked ? [`${counts.pass ?? 0} of ${asked} passed`, ...other.map((verdict) => `${counts[verdict]} ${verdict}`)].join(", ") : "";
  return [told, counts.unsupported && `${counts.unsupported} unsupported`].filter(Boolean).join("; ") || "not asked";
}

// Shares of a total: passed, failed in any way, expected to fail, unsupported.
function shares(counts) {
  const parts = [
    ["pass", counts.pass ?? 0],
    ["bad", sum(counts, (verdict) => BAD.has(verdict))],
    ["xfail", counts.xfail ?? 0],
    ["unsupported", counts.unsupported ?? 0],
  ];
  const bar = h("span", { class: "share", "aria-hidden": "true" });
  for (const [name, number] of parts.filter(([, number]) => number)) {
    const part = h("i", { class: name });
    part.style.flexGrow = number;
    bar.append(part);
  }
  return bar;
}

function totalCell(cases, implementation, single) {
  const counts = tally(cases, [implementation]);
  const asked = askedOf(counts);
  const fraction = asked ? [h("b", {}, String(counts.pass ?? 0)), `/${asked}`] : "–";
  const beside = counts.unsupported ? h("span", { class: "beside" }, `${counts.unsupported} unsup.`) : null;
  const said = single ? [counted(counts), shares(counts)] : [h("span", { class: "fraction" }, fraction), shares(counts), beside];
  if (single) return h("td", { class: "total" }, said);
  return h("td", { class: "total", title: counted(counts) }, h("span", { "aria-hidden": "true" }, said), h("span", { class: "unseen" }, counted(counts)));
}

function resultCell(shown, implementation, single) {
  const result = implementation.results[shown.id];
  if (!result) return h("td", { class: "cell absent" }, h("span", { class: "unseen" }, "not in this report"));
  const said = VERDICTS[result.verdict];
  const label = `${result.verdict}: ${spaced(shown.id)}, ${named(implementation)}`;
  const message = single && result.message ? h("span", { class: "message" }, result.message.split("\n")[0]) : null;
  const button = h("button", { type: "button", tabindex: "-1", "aria-label": label, title: single ? null : label, "data-case": shown.id, "data-implementation": implementation.id },
    icon(result.verdict), h("span", { class: "word" }, single ? result.verdict : said.brief), message);
  return h("td", { class: `cell ${result.verdict}` }, button);
}

function caseRow(shown, first, implementations) {
  const where = h("span", { class: "where" }, shown.clause || "claim", ` ·\u00a0L${shown.level}`);
  const button = h("button", { type: "button", tabindex: "-1", "data-case": shown.id }, h("span", { class: "fact" }, spaced(shown.id)), where);
  return h("tr", { class: first ? "case first" : "case" }, h("th", { scope: "row" }, button),
    implementations.map((implementation) => resultCell(shown, implementation, implementations.length === 1)));
}

function chapterRows(chapter, cases, implementations, folded) {
  const single = implementations.length === 1;
  const toggle = h("button", { type: "button", tabindex: "-1", "data-chapter": chapter, "aria-expanded": String(!folded) },
    h("span", { class: "chevron", "aria-hidden": "true" }), h("span", { class: "name" }, chapter), h("span", { class: "beside" }, plural(cases.length, "case")));
  const head = h("tr", { class: "chapter" }, h("th", { scope: "rowgroup" }, toggle), implementations.map((implementation) => totalCell(cases, implementation, single)));
  const rows = folded ? [] : cases.map((shown, place) => caseRow(shown, cases[place - 1]?.clause !== shown.clause, implementations));
  return h("tbody", {}, head, rows);
}

function headRows(cases, implementations) {
  const single = implementations.length === 1;
  const columns = implementations.map((implementation) => {
    const { info } = implementation;
    const label = `${named(implementation)}, level ${info.level}: ${counted(tally(cases, [implementation]))}`;
    const button = h("button", { type: "button", tabindex: "-1", "aria-label": label, title: label, "data-implementation": implementation.id },
      h("span", { class: "name" }, info.name), " ", h("span", { class: "beside" }, info.version));
    return h("th", { scope: "col" }, button);
  });
  const totals = implementations.map((implementation) => totalCell(cases, implementation, single));
  return [
    h("thead", {}, h("tr", {}, h("th", { scope: "col", class: "corner" }, "Case and clause"), columns)),
    h("tbody", { class: "all" }, h("tr", { class: "chapter" }, h("th", { scope: "row" }, h("span", { class: "name" }, "All shown"), " ", h("span", { class: "beside" }, plural(cases.length, "case"))), totals)),
  ];
}

// The table of these cases and implementations; chapters in *folded* show their totals alone.
function grid(cases, implementations, folded) {
  const chapters = new Map();
  for (const shown of cases) chapters.set(shown.chapter, [...(chapters.get(shown.chapter) ?? []), shown]);
  const kind = implementations.length === 1 ? "single" : implementations.length <= 6 ? "few" : "many";
  const table = h("table", { role: "grid", class: kind, "aria-labelledby": "matrix-title", "aria-describedby": "keys" }, headRows(cases, implementations),
    [...chapters].map(([chapter, inside]) => chapterRows(chapter, inside, implementations, folded.has(chapter))));
  table.addEventListener("keydown", moved);
  table.addEventListener("focusin", (event) => settle(table, event.target));
  (table.querySelector(".cell button") ?? table.querySelector("button")).setAttribute("tabindex", "0");
  return table;
}

// One button of the table is in the page's tab order: the last that had the focus.
function settle(table, button) {
  if (button.tagName !== "BUTTON") return;
  for (const other of table.querySelectorAll('button[tabindex="0"]')) other.setAttribute("tabindex", "-1");
  button.setAttribute("tabindex", "0");
}

// Rows of what can have the focus, each at its column.
function places(table) {
  return [...table.rows].map((row) => [...row.cells].map((cell) => cell.querySelector("button"))).filter((row) => row.some(Boolean));
}

function moved(event) {
  if (event.altKey || event.metaKey || event.shiftKey) return;
  const target = next(places(event.currentTarget), event.target, event.key, event.ctrlKey);
  if (!target) return;
  event.preventDefault();
  target.focus();
  target.scrollIntoView({ block: "nearest", inline: "nearest" });
}

function next(rows, button, pressed, far) {
  const row = rows.findIndex((buttons) => buttons.includes(button));
  const column = row < 0 ? -1 : rows[row].indexOf(button);
  const along = (buttons) => buttons.filter(Boolean);
  if (row < 0) return null;
  if (pressed === "Home") return along(far ? rows[0] : rows[row])[0];
  if (pressed === "End") return along(far ? rows.at(-1) : rows[row]).at(-1);
  if (far) return null;
  if (pressed === "ArrowLeft") return along(rows[row].slice(0, column)).at(-1);
  if (pressed === "ArrowRight") return along(rows[row].slice(column + 1))[0];
  if (pressed === "ArrowUp") return rows.slice(0, row).map((buttons) => buttons[column]).filter(Boolean).at(-1);
  if (pressed === "ArrowDown") return rows.slice(row + 1).map((buttons) => buttons[column]).filter(Boolean)[0];
  return null;
}
