// The page: heading, filters, state in the address, dialog, theme.

const find = (id) => document.getElementById(id);
const [form, frame, dialog] = [find("filters"), find("matrix"), find("details")];
const DATA = JSON.parse(find("matrix-data").textContent);
const CASES = Object.entries(DATA.cases).map(([id, shown]) => {
  const clauseInfo = DATA.clauses[shown.clause];
  const texts = [id, spaced(id), shown.clause, shown.catches, clauseInfo.sentence, ...clauseInfo.sources];
  return { id, ...shown, clauseInfo, chapter: clauseInfo.chapter, searchText: texts.join(" ").toLowerCase() };
});

let folded = new Set();
let opened = {}; // what the dialog shows: {case, implementation}; either can be missing
let openedFirst = {}; // what the dialog showed first; its cell gets the focus back

function fillHeading() {
  const single = DATA.implementations.length === 1 && DATA.implementations[0];
  if (single) {
    document.title = `${nameOf(single)} · loss scaling conformance`;
    find("title").textContent = nameOf(single);
    find("lede").textContent = `Conformance to the specification of loss scaling: ${countsText(tally(CASES, single))}.`;
    for (const choice of document.querySelectorAll(".several")) choice.hidden = true;
  }
  const clauses = Object.keys(DATA.clauses).filter(Boolean).length;
  const size = single ? { "Level claimed": single.info.level } : { Implementations: DATA.implementations.length };
  const facts = { Suite: DATA.suite, Spec: DATA.spec, Date: DATA.date, ...size, Cases: CASES.length, Clauses: clauses };
  find("facts").append(...Object.entries(facts).map(([name, value]) => h("div", h("dt", name), h("dd", value))));
}

// Fill the filters with their options.
function fillFilters() {
  const counts = tally(CASES, ...DATA.implementations);
  const option = (value, text) => h("option", { value }, text);
  const checkbox = (name, value, ...parts) => h("label", h("input", { type: "checkbox", name, value }), parts);
  const levels = [...new Set(CASES.map(({ level }) => level))].sort();
  form.elements.chapter.append(...byChapter(CASES).map(([chapter]) => option(chapter, chapter)));
  form.elements.level.append(...levels.map((level) => option(level, `L${level} ${(DATA.levels[level] ?? "").split(":")[0]}`)));
  find("implementations").append(...DATA.implementations.map((implementation) =>
    checkbox("only", implementation.id, nameOf(implementation))));
  find("verdicts").append(...Object.entries(VERDICTS).map(([verdict, { description }]) =>
    checkbox("verdict", verdict, badge(verdict), h("span.count", counts[verdict]), h("span.secondary", description))));
  for (const field of form.elements) field.disabled = field.name === "verdict" && !counts[field.value];
}

function draw() {
  const filters = new FormData(form);
  const [chapter, level, text] = ["chapter", "level", "text"].map((name) => filters.get(name) ?? "");
  const only = filters.getAll("only"); // none selects all implementations
  const chosen = new Set(filters.getAll("verdict"));
  const implementations = DATA.implementations.filter(({ id }) => !only.length || only.includes(id));
  const selected = CASES.filter((shown) => (!chapter || shown.chapter === chapter)
    && (!level || String(shown.level) === level)
    && shown.searchText.includes(text.trim().toLowerCase()));
  const cases = selected.filter((shown) => {
    const verdicts = new Set(implementations.map(({ results }) => results[shown.id]?.verdict));
    return (!chosen.size || !chosen.isDisjointFrom(verdicts)) && (!filters.has("differ") || verdicts.size > 1);
  });
  frame.replaceChildren(cases.length ? grid(selected, cases, implementations, folded) : h("p.secondary", "No case matches these filters."));
  find("chosen").textContent = only.length ? `${only.length} of ${DATA.implementations.length}` : "all";
  const sizes = [plural(CASES.length, "case"), plural(implementations.length, "implementation")];
  find("status").textContent = `${cases.length} of ${sizes.join(", ")}.`;
  find("fold").textContent = folded.size ? "Unfold chapters" : "Fold chapters";
  fit();
}

// A table that fits its frame scrolls with the page. Keep the focused cell clear of the sticky headings.
function fit() {
  const whole = frame.firstElementChild.offsetWidth <= frame.clientWidth;
  const { offsetHeight, offsetWidth } = frame.querySelector(".corner") ?? frame;
  frame.classList.toggle("whole", whole);
  (whole ? document.documentElement : frame).style.scrollPadding = `${offsetHeight}px 0 0 ${offsetWidth}px`;
}

// Store the filters and the open dialog in the address.
function storeState() {
  const fields = [...new FormData(form), ...Object.entries(opened)].filter(([, value]) => value);
  history.replaceState(null, "", `#${new URLSearchParams(fields)}`);
}

function restoreState() {
  const counts = tally(CASES, ...DATA.implementations);
  const failed = Object.keys(VERDICTS).filter((verdict) => counts[verdict] && !SETTLED.includes(verdict));
  const failures = new URLSearchParams(failed.map((verdict) => ["verdict", verdict])); // shown if the address has no filters
  const fields = location.hash.length > 1 ? new URLSearchParams(location.hash.slice(1)) : failures;
  for (const field of form.elements)
    if (field.type === "checkbox") field.checked = fields.getAll(field.name).includes(field.value);
    else if (field.name) field.value = fields.get(field.name) ?? "";
  draw();
  const { case: id, implementation } = Object.fromEntries(fields);
  if (id || implementation) open({ case: id, implementation });
  else dialog.close();
}

function contents(target) {
  const shown = CASES.find(({ id }) => id === target.case);
  const implementation = DATA.implementations.find(({ id }) => id === target.implementation);
  if (shown && implementation?.results[shown.id]) return resultDetails(shown, implementation);
  if (shown && !target.implementation) return caseDetails(shown);
  if (implementation && !target.case) return implementationDetails(implementation);
  return heading("Not in this matrix", Object.values(target).join(" "));
}

function open(target) {
  if (!dialog.open) openedFirst = target;
  opened = target;
  dialog.showModal();
  dialog.firstElementChild.replaceWith(h("div", contents(target)));
  dialog.scrollTop = 0;
  find("details-title").focus();
  storeState();
}

// Focus the button of the matrix that opens these details or folds this chapter; otherwise the last focused one.
function focus(target) {
  const matches = ({ dataset }) => ["case", "implementation", "chapter"].every((name) => dataset[name] === target[name]);
  (frame.querySelectorAll("button").values().find(matches) ?? frame.querySelector('[tabindex="0"]') ?? frame).focus();
}

function handleClick({ target }) {
  const { case: id, implementation, chapter } = target.closest("button")?.dataset ?? {};
  if (id || implementation) open({ case: id, implementation });
  if (!chapter) return;
  if (!folded.delete(chapter)) folded.add(chapter);
  draw();
  focus({ chapter });
}

const theme = find("theme");
const scheme = document.querySelector('[name="color-scheme"]');
try {
  theme.value = scheme.content = localStorage.getItem("ampscale-theme") ?? scheme.content;
} catch {} // some browsers give pages opened from a file no storage

fillHeading();
fillFilters();
restoreState();
form.addEventListener("input", () => { draw(); storeState(); });
form.addEventListener("submit", (event) => event.preventDefault());
find("clear").addEventListener("click", () => { form.reset(); draw(); storeState(); });
find("fold").addEventListener("click", () => {
  folded = new Set(folded.size ? [] : CASES.map(({ chapter }) => chapter));
  draw();
});
theme.addEventListener("change", () => {
  scheme.content = theme.value;
  localStorage.setItem("ampscale-theme", theme.value);
});
find("skip").addEventListener("click", () => focus({}));
frame.addEventListener("click", handleClick);
dialog.addEventListener("click", handleClick);
dialog.addEventListener("close", () => { opened = {}; storeState(); focus(openedFirst); });
addEventListener("hashchange", restoreState);
addEventListener("resize", fit);
