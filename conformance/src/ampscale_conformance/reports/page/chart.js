// Chart of the scale step by step, expected and actual, on a logarithmic axis.

// First step at which the scales differ in float32; if there is none, the first one in float64; null if all are equal.
function divergenceOf(expected, got) {
  const both = Math.min(expected.length, got.length);
  const differs = [...Array(both).keys()].filter((step) => !Object.is(got[step], expected[step]));
  return differs.find((step) => !Object.is(Math.fround(got[step]), expected[step])) ?? differs[0] ?? null;
}

// Axis positions: the exponent of a scale; infinity has a line above, and zero, negative numbers and NaN one below.
function axisOf(scales) {
  const exponents = scales.filter((scale) => scale > 0 && Number.isFinite(scale)).map(Math.log2);
  if (!exponents.length) exponents.push(0);
  let [low, high] = [Math.floor(Math.min(...exponents)), Math.ceil(Math.max(...exponents))];
  if (high - low < 2) [low, high] = [low - 1, high + 1];
  const ticks = [];
  for (let exponent = low; exponent <= high; exponent += Math.ceil((high - low) / 6))
    ticks.push([exponent, `2${superscript(exponent)}`]);
  const top = scales.includes(Infinity) ? high + 1 : high;
  const bottom = scales.some((scale) => !(scale > 0)) ? low - 1 : low;
  if (top > high) ticks.push([top, "inf"]);
  if (bottom < low) ticks.push([bottom, "≤ 0, nan"]);
  const level = (scale) => (scale === Infinity ? top : scale > 0 ? Math.log2(scale) : bottom);
  return { top, bottom, level, ticks };
}

function summary(finite, expected, got, divergence) {
  const length = `The scale over ${plural(finite.length, "step")}, ${plural(finite.split("-").length - 1, "overflow")}.`;
  const short = got.length < expected.length ? ` up to the last of ${got.length - 1} recorded steps` : "";
  if (divergence === null) return `${length} The expected and the actual scale are equal${short}.`;
  const position = divergence ? `after step ${divergence - 1} (counted from 0)` : "at the start";
  return `${length} First difference ${position}: expected ${readable(expected[divergence])}, got ${readable(got[divergence])}.`;
}

function picture(finite, expected, got, divergence, label) {
  const [width, height] = [dialog.firstElementChild.clientWidth, 240];
  const [left, right, top, floor] = [44, width - 14, 26, height - 44];
  const steps = Math.max(finite.length, 1);
  const axis = axisOf([...expected, ...got]);
  const x = (step) => left + (step / steps) * (right - left);
  const y = (level) => top + ((axis.top - level) / (axis.top - axis.bottom)) * (floor - top);
  const line = (name, x1, y1, x2, y2) => h(`svg:line.${name}`, { x1, y1, x2, y2 });
  const text = (name, x, y, content) => h(`svg:text.${name}`, { x, y }, content);

  const rules = axis.ticks.map(([level, content]) =>
    [line("rule", left, y(level), right, y(level)), text("tick.end", left - 8, y(level) + 4, content)]);
  const bands = [...finite].map((sign, step) => sign === "-" &&
    h("svg:rect.band", { x: x(step), y: top - 6, width: x(step + 1) - x(step), height: floor - top + 6 }));
  const signs = [...finite].map((sign, step) => (sign === "-" || x(1) - x(0) >= 9) &&
    text(sign === "-" ? "sign.overflow" : "sign", x(step + 0.5), floor + 17, sign === "-" ? "−" : "+"));
  const every = Math.ceil((44 * steps) / (right - left));
  const numbers = [...Array(steps + 1).keys()].filter((step) => step % every === 0)
    .map((step) => text("tick", x(step), floor + 36, String(step)));
  const radius = Math.max(1.4, Math.min(3.2, 150 / steps));
  const curve = (name, scales, r) => {
    const points = scales.map((scale, step) => [x(step), y(axis.level(scale))]);
    const stairs = points.map(([cx, cy], step) => (step ? `H${cx}V${cy}` : `M${cx} ${cy}`)).join("");
    return [h(`svg:path.${name}`, { d: stairs }), points.map(([cx, cy]) => h(`svg:circle.${name}`, { cx, cy, r }))];
  };
  const [anchor, offset] = divergence > steps / 2 ? ["end", -6] : ["start", 6];
  const marker = divergence !== null && [
    line("divergence", x(divergence), 10, x(divergence), floor),
    text(`divergence.${anchor}`, x(divergence) + offset, 16, "first difference"),
    h("svg:circle.divergent", { cx: x(divergence), cy: y(axis.level(got[divergence])), r: 5 }),
  ];
  return h("svg:svg.trajectory", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label },
    bands, rules, signs, numbers, curve("expected", expected, radius + 2.4), curve("got", got, radius), marker);
}

function numbersTable(finite, expected, got, divergence) {
  const rows = [...Array(Math.max(expected.length, got.length)).keys()].map((step) => {
    const sign = { "+": "finite", "-": "overflow" }[finite[step - 1]];
    const cells = [sign, ...[expected[step], got[step]].map((scale) => scale && numberNode(scale))];
    return h(step === divergence ? "tr.divergent" : "tr", h("th", { scope: "row" }, step ? String(step - 1) : "start"), cells.map((cell) => h("td", cell)));
  });
  const heads = ["Step", "", "Expected", "Got"].map((title) => h("th", { scope: "col" }, title));
  const table = h("table", h("thead", h("tr", heads)), h("tbody", rows));
  return h("details", h("summary", "The numbers"), h("div.box", table));
}

function chart(trajectory) {
  const { finite } = trajectory;
  const texts = [decodeRuns(trajectory.expected), decodeRuns(trajectory.got)];
  const [expected, got] = texts.map((scales) => scales.map(floatOf));
  const divergence = divergenceOf(expected, got);
  const text = summary(finite, expected, got, divergence);
  const key = [h("span.expected"), "expected", h("span.got"), "got", h("span", "+ finite step"), h("span.overflow", "− overflow")];
  return h("figure.chart", picture(finite, expected, got, divergence, text), h("figcaption.secondary", key), h("p", text),
    numbersTable(finite, ...texts, divergence));
}
