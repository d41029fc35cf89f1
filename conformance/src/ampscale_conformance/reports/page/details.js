// What the dialog shows: one result, one case, or one implementation.

function section(title, ...children) {
  return h("section", {}, h("h3", {}, title), children);
}

function heading(title, beside, above, kind = "") {
  return h("header", {}, h("div", {}, above, h("h2", { id: "details-title", tabindex: "-1", class: kind }, title), h("p", { class: "beside" }, beside)),
    h("button", { type: "button", class: "close", "aria-label": "Close", "data-close": true }, icon("fail")));
}

function link(address, text) {
  return /^https?:\/\//.test(address) ? h("a", { href: address, rel: "noopener noreferrer" }, text) : h("span", { class: "mono" }, text);
}

function clauseSection(shown, clause) {
  if (!shown.clause) return section("Claim", h("p", {}, "A capability that this suite does not know."));
  return section("Clause",
    h("p", { class: "clause" }, h("code", {}, shown.clause), clause.level ? h("span", { class: "beside" }, ` ${clause.level}`) : null),
    h("p", { class: "sentence" }, clause.sentence ? prose(clause.sentence) : "This specification has no such clause."),
    clause.sources.length ? h("ul", { class: "sources" }, clause.sources.map((source) => h("li", {}, prose(source)))) : null,
    clause.link ? h("p", { class: "beside" }, link(clause.link, clause.link)) : null);
}

function catchesSection(shown) {
  return shown.catches ? section("The fault it is there for", h("p", {}, prose(shown.catches))) : null;
}

function copyButton(text) {
  const button = h("button", { type: "button", class: "quiet copy" }, "Copy");
  button.addEventListener("click", async () => {
    const done = await copied(text);
    button.textContent = done ? "Copied" : "Press Ctrl+C";
    button.nextElementSibling.textContent = done ? "The script was copied." : "The script is selected.";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  return [button, h("span", { class: "unseen", role: "status" })];
}

// The clipboard, and where it is closed to files, a selection to copy from.
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    getSelection().selectAllChildren(document.querySelector("#details pre.snippet"));
    return false;
  }
}

function snippetSection(result) {
  if (!result.snippet) return null;
  const shown = result.reproduced === undefined ? "It was not run." : result.reproduced ? "It was run, and did show it." : "It was run, and did not show it.";
  return section("A script that shows it", h("p", { class: "beside" }, `Without ampscale. ${shown}`),
    h("div", { class: "code" }, copyButton(result.snippet), h("pre", { class: "snippet", tabindex: "0", role: "region", "aria-label": "Script" }, result.snippet)));
}

function callsSection(data, result) {
  if (result.transcript === undefined) return null;
  const calls = data.transcripts[result.transcript].map((place) => data.calls[place]);
  return section(`Calls, ${calls.length}`, h("ol", { class: "calls", tabindex: "0", role: "region", "aria-label": "Calls" }, calls.map((call) => callNode(call, data.defaults))));
}

function factsOf(pairs) {
  return h("dl", { class: "pairs" }, pairs.filter(([, value]) => value !== "").map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

function resultDetails(data, shown, implementation, width) {
  const result = implementation.results[shown.id];
  const trajectory = result.trajectory === undefined ? null : data.trajectories[result.trajectory];
  return [
    heading(spaced(shown.id), [named(implementation), ` · level ${shown.level}`], badge(result.verdict), "fact"),
    result.message ? h("p", { class: `message ${result.verdict}` }, result.message) : null,
    clauseSection(shown, data.clauses[shown.clause]),
    catchesSection(shown),
    trajectory && section("The scale", chart(trajectory, width)),
    callsSection(data, result),
    snippetSection(result),
    section("Where", factsOf([...Object.entries(implementation.environment), ["ampscale", implementation.ampscale], ["seconds", String(result.seconds)]])),
  ];
}

function caseDetails(data, shown, implementations) {
  const rows = implementations.filter((one) => one.results[shown.id]).map((one) =>
    h("li", {}, h("button", { type: "button", "data-case": shown.id, "data-implementation": one.id }, badge(one.results[shown.id].verdict), h("span", {}, named(one)))));
  return [
    heading(spaced(shown.id), `${shown.chapter} · level ${shown.level}`, null, "fact"),
    clauseSection(shown, data.clauses[shown.clause]),
    catchesSection(shown),
    section("What came of it", h("ul", { class: "choices" }, rows)),
  ];
}

function implementationDetails(implementation, cases) {
  const { info } = implementation;
  const preset = typeof info.preset === "string" ? info.preset : h("span", { class: "mono" }, ruleNode(info.preset, {}));
  const told = cases.filter(({ id }) => BAD.has(implementation.results[id]?.verdict));
  const rows = told.map(({ id }) => h("li", {}, h("button", { type: "button", "data-case": id, "data-implementation": implementation.id }, badge(implementation.results[id].verdict), h("span", {}, spaced(id)))));
  const chapters = [...new Set(cases.map((shown) => shown.chapter))].map((chapter) => {
    const counts = tally(cases.filter((shown) => shown.chapter === chapter), [implementation]);
    return h("tr", {}, h("th", { scope: "row" }, chapter), h("td", {}, counted(counts)), h("td", {}, shares(counts)));
  });
  return [
    heading(info.name, [info.version, info.url ? [" · ", link(info.url, info.url)] : null], null),
    h("p", { class: "counted" }, counted(implementation.counts)),
    section("By chapter", h("table", { class: "chapters" }, h("tbody", {}, chapters))),
    section("Not passed", rows.length ? h("ul", { class: "choices" }, rows) : h("p", {}, "Nothing that it was asked.")),
    section("What it says of itself", factsOf([["level", String(info.level)], ["preset", preset], ["arrays", info.arrays], ["capabilities", info.capabilities.join(", ") || "none"]])),
    section("Where it ran", factsOf([...Object.entries(implementation.environment), ["ampscale", implementation.ampscale]])),
  ];
}
