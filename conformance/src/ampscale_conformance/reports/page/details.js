// The dialog: details of one result, one case, or one implementation.

const section = (title, ...parts) => h("section", h("h3", title), parts);

// Scrollable box, reachable by keyboard.
const box = (name, label, ...parts) => h(`${name}.box.mono`, { tabindex: "0", role: "region", "aria-label": label }, parts);

function heading(title, subtitle, above) {
  const close = h("form", { method: "dialog" }, h("button.quiet", { "aria-label": "Close" }, icon("fail")));
  return h("header", h("div", above, h("h2", { id: "details-title", tabindex: "-1" }, title), h("p.secondary", subtitle)), close);
}

function link(address) {
  const isWeb = /^https?:\/\//.test(address);
  return isWeb ? h("a", { href: address, rel: "noopener noreferrer" }, address) : h("span.mono", address);
}

function clauseSections({ clause, clauseInfo, catches }) {
  const known = [
    h("p", h("span.mono", clause), " ", h("span.secondary", `${clauseInfo.level}${clauseInfo.basis && ` · ${clauseInfo.basis}`}`)),
    h("p.sentence", clauseInfo.sentence ? prose(clauseInfo.sentence) : "Unknown clause."),
    clauseInfo.sources.length > 0 && h("ul.sources", clauseInfo.sources.map((source) => h("li", prose(source)))),
    h("p.secondary", link(clauseInfo.link)),
  ];
  return [
    clause ? section("Clause", known) : section("Claim", "Unknown capability."),
    catches && section("Detects", prose(catches)),
  ];
}

// Copy to the clipboard, or select the text: some browsers give pages opened from a file no clipboard.
async function copy(script, status) {
  try {
    await navigator.clipboard.writeText(script.textContent);
    status.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(script);
    status.textContent = "Selected: press Ctrl+C";
  }
}

function snippetSection({ snippet, reproduced }) {
  if (!snippet) return null;
  const outcomes = { undefined: "not run", true: "run, and reproduced the failure", false: "run, and did not reproduce the failure" };
  const script = box("pre", "Script", snippet);
  const status = h("output");
  const button = h("button.quiet", "Copy");
  button.addEventListener("click", () => copy(script, status));
  return section("Script that reproduces the failure", h("p.bar", `Without ampscale. It was ${outcomes[reproduced]}.`, status, button), script);
}

function facts(title, pairs) {
  const rows = Object.entries(pairs).filter(([, value]) => value !== "");
  return section(title, h("dl.pairs", rows.map(([name, value]) => [h("dt", name), h("dd", value)])));
}

// Buttons that open results.
function choices(cases, implementations, text) {
  const results = cases.flatMap(({ id }) => implementations.map((implementation) => [id, implementation, implementation.results[id]]));
  return h("ul.choices", results.filter(([, , result]) => result).map(([id, implementation, { verdict }]) =>
    h("li", h("button", target(id, implementation), badge(verdict), text(id, implementation)))));
}

function resultDetails(shown, implementation) {
  const result = implementation.results[shown.id];
  const trajectory = DATA.trajectories[result.trajectory];
  const calls = DATA.transcripts[result.transcript]?.map((index) => callNode(DATA.calls[index]));
  return [
    heading(spaced(shown.id), `${nameOf(implementation)} · level ${shown.level}`, badge(result.verdict)),
    result.message && h(`p.message.${result.verdict}`, result.message),
    clauseSections(shown),
    trajectory && section("Scale", chart(trajectory)),
    calls && section(`Calls, ${calls.length}`, box("ol", "Calls", calls)),
    snippetSection(result),
    facts("Environment", { ...implementation.environment, ampscale: implementation.ampscale, seconds: result.seconds }),
  ];
}

function caseDetails(shown) {
  return [
    heading(spaced(shown.id), `${shown.chapter} · level ${shown.level}`),
    clauseSections(shown),
    section("Results", choices([shown], DATA.implementations, (id, implementation) => nameOf(implementation))),
  ];
}

function implementationDetails(implementation) {
  const { info, environment, suite, spec, ampscale, results } = implementation;
  const { level, arrays } = info;
  const preset = typeof info.preset === "string" ? info.preset : h("span.mono", ruleNode(info.preset, {}));
  const failed = CASES.filter(({ id }) => results[id] && !SETTLED.includes(results[id].verdict));
  const chapters = byChapter(CASES).map(([chapter, cases]) => [chapter, tally(cases, implementation)])
    .map(([chapter, counts]) => [chapter, [countsText(counts), shares(counts)]]);
  return [
    heading(info.name, [info.version, info.url && [" · ", link(info.url)]]),
    h("p.sentence", countsText(tally(CASES, implementation))),
    facts("By chapter", Object.fromEntries(chapters)),
    section("Not passed", failed.length ? choices(failed, [implementation], spaced) : "None."),
    facts("Claims", { level, preset, arrays, capabilities: info.capabilities.join(", ") || "none" }),
    facts("Environment", { ...environment, suite, spec, ampscale }),
  ];
}
