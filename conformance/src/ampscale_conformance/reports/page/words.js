"use strict";

// Elements, and the text of a report's values.

// Create an element: h("p.note", { id: "first" }, "text", [node, …]) is <p class="note" id="first">…; null and false are skipped.
function h(selector, ...parts) {
  const [name, ...classes] = selector.split(".");
  const isSvg = name.startsWith("svg:");
  const node = isSvg ? document.createElementNS("http://www.w3.org/2000/svg", name.slice(4)) : document.createElement(name);
  if (classes.length) node.setAttribute("class", classes.join(" "));
  for (const part of parts.flat(Infinity))
    if (part?.constructor === Object) for (const [key, value] of Object.entries(part)) node.setAttribute(key, value);
    else if (part != null && part !== false) node.append(part);
  return node;
}

const RING = "M1.8 8a6.2 6.2 0 1 0 12.4 0a6.2 6.2 0 1 0-12.4 0";

// For each verdict: a short name, a description, and the path of its symbol.
const VERDICTS = {
  pass: { brief: "pass", description: "conforms to the clause", symbol: "M3 8.6 6.4 12 13 4.6" },
  fail: { brief: "fail", description: "violates the clause", symbol: "M3.8 3.8l8.4 8.4M12.2 3.8l-8.4 8.4" },
  error: { brief: "error", description: "raised an error", symbol: "M8 2.5v7.2M8 13v.4" },
  unsupported: { brief: "unsup.", description: "not claimed; not a pass", symbol: "M4 8h8" },
  xfail: { brief: "xfail", description: "expected failure", symbol: `${RING}M5.8 5.8l4.4 4.4M10.2 5.8l-4.4 4.4` },
  xpass: { brief: "xpass", description: "unexpected pass", symbol: `${RING}M5.2 8.3 7.2 10.3 10.8 6` },
  timeout: { brief: "timeout", description: "no reply in time", symbol: `${RING}M8 4.4V8l2.6 1.6` },
  crash: { brief: "crash", description: "the process ended", symbol: "M9.4 1.8 4.6 8.9h5.6L6.6 14.2" },
  "protocol-error": { brief: "protocol", description: "invalid reply", symbol: "M3 6h10M3 10h10M10.6 3 5.4 13" },
};
const SETTLED = ["pass", "unsupported", "xfail"]; // verdicts that need no attention

const icon = (verdict) =>
  h("svg:svg.icon", { viewBox: "0 0 16 16", "aria-hidden": "true" }, h("svg:path", { d: VERDICTS[verdict].symbol }));
const badge = (verdict) => h(`span.badge.${verdict}`, icon(verdict), verdict);
const spaced = (id) => id.replaceAll("-", " ");
const nameOf = ({ info }) => `${info.name} ${info.version}`.trim();
const plural = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

// Attributes of a button that opens a result.
const target = (id, implementation) => ({ "data-case": id, "data-implementation": implementation.id });

// Text with code between backticks and Chinese between Chinese quotation marks.
function prose(text) {
  const coded = (part) => part.split(/`([^`]+)`/).map((piece, index) => (index % 2 ? h("code", piece) : piece));
  const quoted = (part) => h("span.zh", { lang: "zh-Hans" }, coded(part));
  return text.split(/(「[^」]*」)/).map((part, index) => (index % 2 ? quoted(part) : coded(part)));
}

// Return the number that a result of Python's float.hex(), "inf" or "nan" represents; null for any other text.
function floatOf(text) {
  if (/^(-?inf|nan)$/.test(text)) return Number(text.replace("inf", "Infinity"));
  const match = /^(-?)0x([01])(?:\.([0-9a-f]+))?p([+-]\d+)$/.exec(text);
  if (!match) return null;
  const [, sign, lead, digits = "", exponent] = match;
  const magnitude = parseInt(lead + digits, 16) * 2 ** (exponent - 4 * digits.length);
  return sign ? -magnitude : magnitude;
}

// Decode the run-length encoding of a matrix: pairs [times, items].
const decodeRuns = (runs) => runs.flatMap(([times, items]) => Array(times).fill(items).flat());

const superscript = (number) => String(number).replace(/[-\d]/g, (sign) => "⁰¹²³⁴⁵⁶⁷⁸⁹⁻"["0123456789-".indexOf(sign)]);

const decimal = (number) => Object.is(number, -0) ? "-0" : String(number).replace("Infinity", "inf").replace("NaN", "nan");

// A number as text, with its power of two if it is one: "256 = 2⁸", "2¹²⁷", "0.1".
function readable(number) {
  const exponent = Math.round(Math.log2(number));
  if (2 ** exponent !== number || [-Infinity, 0, 1, Infinity].includes(exponent)) return decimal(number);
  const power = `2${superscript(exponent)}`;
  return Math.abs(exponent) <= 24 ? `${decimal(number)} = ${power}` : power;
}

const numberNode = (text) => [readable(floatOf(text)), " ", h("span.hex", text)];

// The shortest decimal number that rounds to this float32.
const shortest = (number) => [1, 2, 3, 4, 5, 6, 7, 8].map((digits) => Number(number.toPrecision(digits)))
  .find((rounded) => Object.is(Math.fround(rounded), number)) ?? number;

// One element, decoded from its hex digits.
function elementOf(digits, dtype) {
  if (dtype.startsWith("complex")) {
    const part = dtype === "complex64" ? "float32" : "float64";
    const real = elementOf(digits.slice(0, digits.length / 2), part);
    const imaginary = elementOf(digits.slice(digits.length / 2), part);
    return `${real}${imaginary.startsWith("-") ? "" : "+"}${imaginary}i`;
  }
  const bits = 4 * digits.length;
  const pattern = BigInt(`0x${digits}`);
  if (dtype === "bool") return pattern ? "True" : "False";
  if (dtype.startsWith("int")) return String(BigInt.asIntN(bits, pattern));
  const view = new DataView(new ArrayBuffer(8));
  view.setBigUint64(0, pattern << BigInt(64 - bits)); // a bfloat16 is the upper half of a float32
  if (dtype === "float64") return decimal(view.getFloat64(0));
  return decimal(dtype === "float16" ? view.getFloat16(0) : shortest(view.getFloat32(0)));
}

function arrayNode({ dtype, shape, bits, runs = [[1, bits]] }) {
  const element = (digits) => h("span.element", elementOf(digits, dtype), h("span.hex", digits));
  const elements = runs.map(([times, items]) => {
    const nodes = items.map(element);
    return times === 1 ? nodes : [nodes.length === 1 ? nodes : [" (", nodes, ")"], ` × ${times}`];
  });
  return h("span", h("span.dtype", `${dtype}(${shape.join("×")})`), elements);
}

const OPAQUE = ["handle", "optimizer", "cell", "saved", "adapter"];
const joined = (nodes) => nodes.flatMap((node, index) => (index ? [", ", node] : [node]));

function ruleNode(rule, defaults) {
  const changed = Object.entries(rule).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(defaults[name]));
  return ["rule(", joined(changed.map(([name, value]) => h("span.token", `${name}=`, valueNode(value)))), ")"];
}

// A value in JSON form, as a node.
function valueNode(value) {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "number") return readable(value).split(" = ")[0];
  if (typeof value === "string") return floatOf(value) === null ? `"${value}"` : numberNode(value);
  if (Array.isArray(value)) return ["[", joined(value.map(valueNode)), "]"];
  if ("dtype" in value && "shape" in value) return arrayNode(value);
  if ("dict" in value) return ["{", joined(Object.entries(value.dict).map(([key, item]) => [key, ": ", valueNode(item)])), "}"];
  if ("tuple" in value) return ["(", joined(value.tuple.map(valueNode)), ")"];
  if ("repr" in value) return h("span.token", value.repr);
  const kind = OPAQUE.find((name) => name in value);
  return kind ? h("span.token", `${kind} ${value[kind]}`) : ruleNode(value, DATA.defaults);
}

function callNode({ method, arguments: values, raised, result = null }) {
  const parts = values.map((value, index) => {
    const isFlag = method.endsWith("update") && index === 1 && typeof value === "boolean";
    return isFlag ? h(value ? "span.finite" : "span.overflow", value ? "finite" : "overflow") : valueNode(value);
  });
  const outcome = raised ? h("span.overflow", `raised ${raised}`) : valueNode(result);
  return h("li", h("b", method), "(", joined(parts), ") ", h("span.secondary", "→ "), outcome);
}
