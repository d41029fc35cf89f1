// The page: filters, what the address says, the dialog, the theme.

const DATA = JSON.parse(document.getElementById("matrix-data").textContent);
const CASES = Object.entries(DATA.cases).map(([id, said]) => ({ id, ...said, chapter: DATA.clauses[said.clause].chapter }));
const CHAPTERS = [...new Set(CASES.map((shown) => shown.chapter))];
const find = (id) => document.getElementById(id);
const [form, frame, dialog] = [find("filters"), find("matrix"), find("details")];

const folded = new Set();
let opened = null; // what the dialog shows: {case, implementation}, either may be missing
let opener = null; // what had the focus before

// --- the head ---

function head() {
  const [first, ...others] = DATA.implementations;
  const single = first && !others.length;
  document.title = single ? `${named(first)} · loss scaling conformance` : document.title;
  if (single) find("title").textContent = named(first);
  const counts = tally(CASES, DATA.implementations);
  find("lede").append(single
    ? `Loss scaling, clause by clause: ${counted(counts)}.`
    : "Each row is a case: one fact of the specification of loss scaling, put to each implementation. Open a cell to see what was asked and what came.");
  const facts = [["Suite", `ampscale ${DATA.ampscale}`], ["Date", DATA.date], single ? ["Level claimed", first.info.level] : ["Implementations", DATA.implementations.length], ["Cases", CASES.length], ["Clauses", Object.keys(DATA.clauses).filter(Boolean).length]];
  find("facts").append(...facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, String(value)))));
}

// --- filters ---

function choices() {
  form.elements.chapter.append(...CHAPTERS.map((chapter) => h("option", { value: chapter }, chapter)));
  const levels = [...new Set(CASES.map((shown) => shown.level))].sort();
  form.elements.level.append(...levels.map((level) => h("option", { value: level }, `L${level} ${(DATA.levels[level] ?? "").split(":")[0]}`)));
  const counts = tally(CASES, DATA.implementations);
  find("verdicts").append(h("div", {}, Object.entries(VERDICTS).map(([verdict, said]) =>
    h("label", {}, h("input", { type: "checkbox", name: "verdict", value: verdict, disabled: !counts[verdict] }), badge(verdict),
      h("span", { class: "count" }, String(counts[verdict] ?? 0)), h("span", { class: "beside" }, said.words)))));
  find("implementations").querySelector("fieldset").append(...DATA.implementations.map((one) =>
    h("label", {}, h("input", { type: "checkbox", name: "only", value: one.id }), named(one))));
  const several = DATA.implementations.length > 1;
  find("implementations").hidden = form.elements.differ.parentElement.hidden = !several;
}

function filters() {
  const chosen = new FormData(form);
  return {
    chapter: chosen.get("chapter"), level: chosen.get("level"), text: chosen.get("text").trim().toLowerCase(), differ: chosen.has("differ"),
    verdict: new Set(chosen.getAll("verdict")), only: new Set(chosen.getAll("only")),
  };
}

function fits(shown, implementations, wanted) {
  const verdicts = implementations.map((one) => one.results[shown.id]?.verdict);
  const clause = DATA.clauses[shown.clause];
  const words = `${shown.id} ${spaced(shown.id)} ${shown.clause} ${shown.catches} ${clause.sentence} ${clause.sources.join(" ")}`.toLowerCase();
  return (!wanted.chapter || shown.chapter === wanted.chapter)
    && (wanted.level === "" || String(shown.level) === wanted.level)
    && words.includes(wanted.text)
    && (!wanted.verdict.size || verdicts.some((verdict) => wanted.verdict.has(verdict)))
    && (!wanted.differ || new Set(verdicts).size > 1);
}

function draw() {
  const wanted = filters();
  const implementations = DATA.implementations.filter((one) => !wanted.only.size || wanted.only.has(one.id));
  const cases = CASES.filter((shown) => fits(shown, implementations, wanted));
  frame.replaceChildren(cases.length && implementations.length ? grid(cases, implementations, folded) : h("p", { class: "nothing" }, "No case fits these filters."));
  find("chosen").textContent = wanted.only.size ? `${wanted.only.size} of ${DATA.implementations.length}` : "all";
  find("status").textContent = `${cases.length} of ${plural(CASES.length, "case")}, ${plural(implementations.length, "implementation")}.`;
  find("fold").textContent = folded.size ? "Unfold chapters" : "Fold chapters";
  fit();
}

// A table that is no wider than its frame scrolls with the page; what gets the focus is not left under the heads that stand still.
function fit() {
  const table = frame.firstElementChild;
  const whole = table.offsetWidth <= frame.clientWidth;
  const corner = frame.querySelector(".corner");
  frame.classList.toggle("whole", whole);
  frame.style.scrollPadding = corner ? `${corner.offsetHeight}px 0 0 ${corner.offsetWidth}px` : "";
  document.documentElement.style.scrollPaddingTop = corner && whole ? `${corner.offsetHeight}px` : "";
}

// --- the address: filters, and what is open ---

function tell() {
  const wanted = filters();
  const said = new URLSearchParams();
  for (const name of ["chapter", "level", "text"]) if (wanted[name]) said.set(name, wanted[name]);
  for (const name of ["verdict", "only"]) if (wanted[name].size) said.set(name, [...wanted[name]].join(","));
  if (wanted.differ) said.set("differ", "1");
  for (const name of ["case", "implementation"]) if (opened?.[name]) said.set(name, opened[name]);
  history.replaceState(null, "", `#${said}`);
}

function listen() {
  const said = new URLSearchParams(location.hash.slice(1));
  for (const name of ["chapter", "level", "text"]) form.elements[name].value = said.get(name) ?? "";
  for (const name of ["verdict", "only"]) {
    const chosen = new Set((said.get(name) ?? "").split(","));
    for (const box of form.querySelectorAll(`[name=${name}]`)) box.checked = chosen.has(box.value);
  }
  form.elements.differ.checked = said.has("differ");
  draw();
  const wanted = { case: said.get("case"), implementation: said.get("implementation") };
  if (wanted.case || wanted.implementation) open(wanted);
  else if (dialog.open) dialog.close();
}

// --- the dialog ---

function contents(wanted) {
  const shown = CASES.find((one) => one.id === wanted.case);
  const implementation = DATA.implementations.find((one) => one.id === wanted.implementation);
  if (shown && implementation?.results[shown.id]) return resultDetails(DATA, shown, implementation, room());
  if (shown && !wanted.implementation) return caseDetails(DATA, shown, DATA.implementations);
  if (implementation && !wanted.case) return implementationDetails(implementation, CASES);
  return [heading("Not in this matrix", `${wanted.case ?? ""} ${wanted.implementation ?? ""}`, null)];
}

// How wide a picture in the dialog may be.
function room() {
  const { paddingLeft, paddingRight } = getComputedStyle(find("details-body"));
  return find("details-body").clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
}

function selector(wanted) {
  const having = (name) => (wanted[name] ? `[data-${name}="${CSS.escape(wanted[name])}"]` : `:not([data-${name}])`);
  return `button${having("case")}${having("implementation")}`;
}

function open(wanted) {
  if (!dialog.open) {
    opener = wanted;
    dialog.showModal();
  }
  opened = wanted;
  find("details-body").replaceChildren(...contents(wanted).filter(Boolean));
  dialog.scrollTop = 0;
  find("details-title").focus();
  tell();
}

function closed() {
  opened = null;
  tell();
  (frame.querySelector(selector(opener)) ?? frame.querySelector('[tabindex="0"]') ?? frame).focus();
  opener = null;
}

function pressed(event) {
  const button = event.target.closest("button");
  if (!button) return;
  const { case: id, implementation, chapter, close } = button.dataset;
  if (close !== undefined) dialog.close();
  else if (chapter !== undefined) fold(chapter);
  else if (id || implementation) open({ case: id, implementation });
}

function fold(chapter) {
  if (!folded.delete(chapter)) folded.add(chapter);
  draw();
  frame.querySelector(`[data-chapter="${CSS.escape(chapter)}"]`).focus();
}

// --- the theme ---

function remembered(theme) {
  try {
    if (theme) localStorage.setItem("ampscale-theme", theme);
    return localStorage.getItem("ampscale-theme");
  } catch {
    return null; // some browsers keep nothing for files
  }
}

function dress(theme) {
  const dark = (theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  if (theme) document.documentElement.dataset.theme = theme;
  find("theme").textContent = dark ? "Light theme" : "Dark theme";
  return dark;
}

// --- beginning ---

head();
choices();
let dark = dress(remembered());
find("theme").addEventListener("click", () => { dark = dress(remembered(dark ? "light" : "dark") ?? (dark ? "light" : "dark")); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { dark = dress(document.documentElement.dataset.theme); });
form.addEventListener("input", () => { draw(); tell(); });
form.addEventListener("submit", (event) => event.preventDefault());
find("clear").addEventListener("click", () => { form.reset(); draw(); tell(); });
find("fold").addEventListener("click", () => {
  if (folded.size) folded.clear();
  else CHAPTERS.forEach((chapter) => folded.add(chapter));
  draw();
});
frame.addEventListener("click", pressed);
dialog.addEventListener("click", (event) => (event.target === dialog ? dialog.close() : pressed(event)));
dialog.addEventListener("close", closed);
addEventListener("hashchange", listen);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address tells filters, and not places
  (frame.querySelector('[tabindex="0"]') ?? frame).focus();
});
addEventListener("resize", fit);
document.addEventListener("click", (event) => { if (!event.target.closest("#implementations")) find("implementations").open = false; });
find("implementations").addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  find("implementations").open = false;
  find("implementations").querySelector("summary").focus();
});
listen();
