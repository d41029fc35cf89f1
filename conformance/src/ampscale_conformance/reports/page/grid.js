// The matrix as a table, and its keyboard navigation.

const byChapter = (cases) => [...Map.groupBy(cases, ({ chapter }) => chapter)];

// Number of results of each verdict.
function tally(cases, ...implementations) {
  const counts = Object.fromEntries(Object.keys(VERDICTS).map((verdict) => [verdict, 0]));
  for (const { results } of implementations) for (const { id } of cases) if (results[id]) counts[results[id].verdict] += 1;
  return counts;
}

const totalOf = ({ unsupported, ...counts }) => Object.values(counts).reduce((total, count) => total + count);

// Summary, such as "22 of 24 passed, 2 fail; 3 unsupported".
function countsText(counts) {
  const { pass, unsupported, ...others } = counts;
  const details = Object.entries(others).filter(([, count]) => count).map(([verdict, count]) => `, ${count} ${verdict}`);
  const passed = totalOf(counts) && `${pass} of ${totalOf(counts)} passed${details.join("")}`;
  return [passed, unsupported && `${unsupported} unsupported`].filter(Boolean).join("; ") || "not run";
}

// Bar with the shares of passed cases, failed cases, expected failures and unsupported cases.
function shares(counts) {
  const { pass, xfail, unsupported } = counts;
  const parts = { pass, bad: totalOf(counts) - pass - xfail, xfail, unsupported };
  const bar = h("span.share", Object.keys(parts).filter((name) => parts[name]).map((name) => h(`i.${name}`)));
  for (const part of bar.children) part.style.flexGrow = parts[part.className];
  return bar;
}

function totalCell(cases, implementation) {
  const counts = tally(cases, implementation);
  const fraction = totalOf(counts) ? [h("b", counts.pass), `/${totalOf(counts)}`] : "–";
  const note = counts.unsupported > 0 && h("small", `${counts.unsupported} unsup.`);
  const label = { title: countsText(counts), "aria-label": countsText(counts) };
  return h("td.total", label, h("span.fraction", fraction), shares(counts), note);
}

// First line of a message. If several cases have this message, all but the first case refer to the first one instead.
function brief(message, id, [first, ...others]) {
  if (id !== first) return `as in “${spaced(first)}”`;
  return `${message.split("\n")[0]}${others.length ? ` (${others.length + 1} cases)` : ""}`;
}

// In a matrix of one report, *messages* has the cases of each message, and table cells show the message; otherwise *messages* is null.
function resultCell({ id }, implementation, messages) {
  const { verdict, message = "" } = implementation.results[id] ?? {};
  if (!verdict) return h("td.absent", h("span.visually-hidden", "not in this report"));
  const label = `${verdict}: ${spaced(id)}, ${nameOf(implementation)}`;
  const word = h("span.word", messages ? verdict : VERDICTS[verdict].brief);
  const parts = [icon(verdict), word, messages && h("span.message", message && brief(message, id, messages.get(message)))];
  return h(`td.cell.${verdict}`, h("button", target(id, implementation), { "aria-label": label, title: label }, parts));
}

function caseRow(shown, previous, implementations, messages) {
  const { id, clause, level } = shown;
  const clauseAndLevel = clause !== previous?.clause && h("span.clause-and-level", `${clause || "claim"} ·\u00a0L${level}`);
  const cells = implementations.map((implementation) => resultCell(shown, implementation, messages));
  const button = h("button", { "data-case": id }, h("span", spaced(id)), clauseAndLevel);
  return h(clauseAndLevel ? "tr.case" : "tr.case.further", h("th", { scope: "row" }, button), cells);
}

function columnHead(cases, implementation) {
  const { id, info } = implementation;
  const label = `${nameOf(implementation)}, level ${info.level}: ${countsText(tally(cases, implementation))}`;
  const attributes = { "data-implementation": id, "aria-label": label, title: label };
  return h("th", { scope: "col" }, h("button", attributes, h("b", info.name), " ", h("span.secondary", info.version)));
}

// Ids of the cases of one report by message.
const casesByMessage = (cases, { results }) => new Map([...Map.groupBy(cases, ({ id }) => results[id]?.message ?? "")]
  .map(([message, inside]) => [message, inside.map(({ id }) => id)]));

// Table of these cases and implementations. The totals are those of *selected*, which includes cases that verdict filters hide.
// A folded chapter shows only its totals.
function grid(selected, cases, implementations, folded) {
  const size = (inside) => h("span.secondary", plural(inside.length, "case"));
  const totals = (head, inside) => h("tr.chapter", head, implementations.map((implementation) => totalCell(inside, implementation)));
  const all = h("th", { scope: "row" }, h("b", "All"), " ", size(selected));
  const messages = implementations.length === 1 ? casesByMessage(cases, implementations[0]) : null;
  const whole = new Map(byChapter(selected));
  const chapters = byChapter(cases).map(([chapter, inside]) => {
    const attributes = { "data-chapter": chapter, "aria-expanded": !folded.has(chapter) };
    const head = h("th", { scope: "rowgroup" }, h("button", attributes, h("b", chapter), size(whole.get(chapter))));
    const rows = inside.map((shown, index) => caseRow(shown, inside[index - 1], implementations, messages));
    return h("tbody", totals(head, whole.get(chapter)), !folded.has(chapter) && rows);
  });
  const kind = implementations.length === 1 ? "single" : implementations.length <= 6 ? "few" : "many";
  const columns = implementations.map((implementation) => columnHead(cases, implementation));
  const table = h(`table.${kind}`, { role: "grid", "aria-label": "Cases and implementations", "aria-describedby": "keys" },
    h("thead", h("tr", h("th.corner", { scope: "col" }, "Case and clause"), columns)),
    h("tbody.all", totals(all, selected)), chapters);
  table.addEventListener("keydown", move);
  table.addEventListener("focusin", (event) => setTabStop(table, event.target));
  setTabStop(table, table.querySelector(".cell button") ?? table.querySelector("button"));
  return table;
}

// Leave only one button of the table in the tab order: the last one that had the focus.
function setTabStop(table, button) {
  for (const other of table.querySelectorAll("button")) other.tabIndex = other === button ? 0 : -1;
}

function move(event) {
  if (event.altKey || event.metaKey || event.shiftKey) return;
  const rows = [...event.currentTarget.rows].map((row) => [...row.cells].map((cell) => cell.querySelector("button")));
  const row = rows.findIndex((buttons) => buttons.includes(event.target));
  const column = rows[row].indexOf(event.target);
  const inColumn = rows.map((buttons) => buttons[column]);
  const reached = event.ctrlKey ? rows.flat() : rows[row]; // by Home and End
  const candidates = {
    Home: reached,
    End: reached.toReversed(),
    ArrowLeft: rows[row].slice(0, column).toReversed(),
    ArrowRight: rows[row].slice(column + 1),
    ArrowUp: inColumn.slice(0, row).toReversed(),
    ArrowDown: inColumn.slice(row + 1),
  };
  const target = candidates[event.key]?.find(Boolean); // some cells have no button
  if (!target) return;
  event.preventDefault();
  target.focus();
}
