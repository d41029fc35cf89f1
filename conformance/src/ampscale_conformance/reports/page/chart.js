// The scale step by step, wanted against got, on an axis of powers of two.

const EDGE = { left: 44, right: 14, top: 26, bottom: 44 };

// The first step where they differ, in the precision in which they were compared; null where they do not.
function divergenceOf(wanted, got) {
  const both = Math.min(wanted.length, got.length);
  const differs = [...Array(both).keys()].filter((step) => !Object.is(got[step], wanted[step]));
  const clearly = differs.find((step) => !Object.is(Math.fround(got[step]), wanted[step]));
  return clearly ?? differs[0] ?? null;
}

// Where a scale stands: its exponent; what has none stands on a line of its own, above or below.
function axisOf(scales) {
  const exponents = scales.filter((scale) => scale > 0 && Number.isFinite(scale)).map(Math.log2);
  let low = Math.floor(Math.min(...exponents, Infinity)), high = Math.ceil(Math.max(...exponents, -Infinity));
  if (!exponents.length) [low, high] = [0, 0];
  if (high - low < 2) [low, high] = [low - 1, high + 1];
  const top = scales.includes(Infinity) ? high + 1 : high;
  const bottom = scales.some((scale) => !(scale > 0)) ? low - 1 : low;
  const level = (scale) => (scale === Infinity ? top : scale > 0 ? Math.log2(scale) : bottom);
  const stride = Math.max(1, Math.ceil((high - low) / 6));
  const ticks = [];
  for (let exponent = low; exponent <= high; exponent += stride) ticks.push([exponent, `2${superscript(exponent)}`]);
  if (top > high) ticks.push([top, "inf"]);
  if (bottom < low) ticks.push([bottom, "≤ 0, nan"]);
  return { top, bottom, level, ticks };
}

function stairs(points) {
  return points.map(([x, y], place) => (place ? `H${x}V${y}` : `M${x} ${y}`)).join("");
}

function chart(told, width) {
  const trajectory = { ...told, wanted: inFull(told.wanted), got: inFull(told.got) };
  const [wanted, got] = [trajectory.wanted.map(floatOf), trajectory.got.map(floatOf)];
  const steps = Math.max(trajectory.finite.length, 1);
  const axis = axisOf([...wanted, ...got]);
  const height = 240;
  const x = (step) => Number((EDGE.left + (step / steps) * (width - EDGE.left - EDGE.right)).toFixed(2));
  const y = (scale) => Number((EDGE.top + ((axis.top - axis.level(scale)) / (axis.top - axis.bottom)) * (height - EDGE.top - EDGE.bottom)).toFixed(2));
  const floor = height - EDGE.bottom;
  const at = (exponent) => y(2 ** exponent);
  const svg = h("svg:svg", { class: "trajectory", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": summary(trajectory, wanted, got) });

  for (const [level, label] of axis.ticks) {
    const high = label === "inf" ? EDGE.top : label.startsWith("2") ? at(level) : floor;
    svg.append(h("svg:line", { class: "rule", x1: EDGE.left, x2: width - EDGE.right, y1: high, y2: high }));
    svg.append(h("svg:text", { class: "tick", x: EDGE.left - 8, y: high + 4, "text-anchor": "end" }, label));
  }
  svg.append(...signs(trajectory.finite, x, floor));
  const every = Math.max(1, Math.ceil(steps / Math.floor((width - EDGE.left) / 44)));
  for (let step = 0; step <= steps; step += every)
    svg.append(h("svg:text", { class: "tick", x: x(step), y: floor + 36, "text-anchor": "middle" }, String(step)));

  const parted = divergenceOf(wanted, got);
  if (parted !== null) {
    const side = parted > steps / 2 ? ["end", -6] : ["start", 6];
    svg.append(h("svg:line", { class: "divergence", x1: x(parted), x2: x(parted), y1: 10, y2: floor }));
    svg.append(h("svg:text", { class: "divergence-label", x: x(parted) + side[1], y: 16, "text-anchor": side[0] }, "they part here"));
  }
  const radius = steps > 120 ? 1.4 : steps > 48 ? 2.2 : 3.2;
  const points = (scales) => scales.map((scale, step) => [x(step), y(scale)]);
  svg.append(h("svg:path", { class: "wanted", d: stairs(points(wanted)) }), h("svg:path", { class: "got", d: stairs(points(got)) }));
  svg.append(...points(wanted).map(([cx, cy]) => h("svg:circle", { class: "wanted", cx, cy, r: radius + 2.4 })));
  svg.append(...points(got).map(([cx, cy], step) => h("svg:circle", { class: step === parted ? "got parted" : "got", cx, cy, r: radius })));
  return h("figure", { class: "chart" }, svg, key(), h("p", { class: "said" }, summary(trajectory, wanted, got)), numbers(trajectory, parted));
}

// A sign for each step, and a band where it overflowed.
function signs(finite, x, floor) {
  const wide = x(1) - x(0) >= 9;
  return [...finite].flatMap((sign, place) => {
    const overflow = sign === "-";
    const band = overflow && h("svg:rect", { class: "overflow", x: x(place), y: EDGE.top - 6, width: x(place + 1) - x(place), height: floor - EDGE.top + 6 });
    const mark = wide
      ? h("svg:text", { class: overflow ? "sign overflow-sign" : "sign", x: (x(place) + x(place + 1)) / 2, y: floor + 17, "text-anchor": "middle" }, overflow ? "−" : "+")
      : overflow && h("svg:line", { class: "overflow-mark", x1: x(place + 1), x2: x(place + 1), y1: floor + 6, y2: floor + 16 });
    return [band, mark].filter(Boolean);
  });
}

function key() {
  const sample = (name) => h("svg:svg", { class: "trajectory sample", viewBox: "0 0 34 14", width: 34, height: 14, "aria-hidden": "true" },
    h("svg:path", { class: name, d: "M2 7H32" }), h("svg:circle", { class: name, cx: 17, cy: 7, r: name === "wanted" ? 5.6 : 3.2 }));
  return h("figcaption", {}, h("span", {}, sample("wanted"), "wanted"), h("span", {}, sample("got"), "got"),
    h("span", {}, h("b", {}, "+"), " finite step"), h("span", {}, h("b", { class: "overflow-sign" }, "−"), " overflow"));
}

function summary(trajectory, wanted, got) {
  const parted = divergenceOf(wanted, got);
  const told = `The scale over ${plural(trajectory.finite.length, "step")}, ${plural([...trajectory.finite].filter((sign) => sign === "-").length, "overflow")}.`;
  if (parted === null) return `${told} Wanted and got are the same${got.length < wanted.length ? ` as far as it came, step ${got.length - 1}` : ""}.`;
  return `${told} They part ${parted ? `after step ${parted}` : "at the start"}: wanted ${readable(wanted[parted])}, got ${readable(got[parted])}.`;
}

function numbers(trajectory, parted) {
  const cell = (text) => h("td", {}, text === undefined ? "" : numberNode(text));
  const rows = Array.from({ length: Math.max(trajectory.wanted.length, trajectory.got.length) }, (_, step) =>
    h("tr", { class: step === parted && "parted" }, h("th", { scope: "row" }, String(step)),
      h("td", {}, { "+": "finite", "-": "overflow" }[trajectory.finite[step - 1]] ?? ""), cell(trajectory.wanted[step]), cell(trajectory.got[step])));
  const head = ["Step", "", "Wanted", "Got"].map((title) => h("th", { scope: "col" }, title));
  return h("details", {}, h("summary", {}, "The numbers"), h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows))));
}
