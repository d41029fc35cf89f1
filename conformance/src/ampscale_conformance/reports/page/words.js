"use strict";

// Elements, and values of a report in words.

function h(name, attributes = {}, ...children) {
  const node = name.startsWith("svg:") ? document.createElementNS("http://www.w3.org/2000/svg", name.slice(4)) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(key, value);
    else if (value !== false && value != null) node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child != null && child !== false));
  return node;
}

const VERDICTS = {
  pass: { brief: "pass", words: "does what the clause says" },
  fail: { brief: "fail", words: "does something else" },
  error: { brief: "error", words: "raised where it must not" },
  unsupported: { brief: "unsup.", words: "not claimed; never a pass" },
  xfail: { brief: "xfail", words: "expected not to pass" },
  xpass: { brief: "xpass", words: "passes unexpectedly" },
  timeout: { brief: "timeout", words: "no answer in time" },
  crash: { brief: "crash", words: "its process ended" },
  "protocol-error": { brief: "protocol", words: "its answer was none" },
};

function icon(verdict) {
  return h("svg:svg", { class: "icon", "aria-hidden": "true", focusable: "false" }, h("svg:use", { href: `#v-${verdict}` }));
}

function badge(verdict) {
  return h("span", { class: `badge ${verdict}` }, icon(verdict), verdict);
}

const spaced = (id) => id.replaceAll("-", " ");
const named = (implementation) => `${implementation.info.name} ${implementation.info.version}`.trim();
const plural = (number, one, many = `${one}s`) => `${number} ${number === 1 ? one : many}`;

// Text in which what stands between two backticks is code, and what stands in Chinese quotation marks is Chinese.
function prose(text) {
  return text.split(/(「[^」]*」)/).map((part) => (part.startsWith("「") ? h("span", { lang: "zh-Hans", class: "zh" }, coded(part)) : coded(part)));
}

function coded(text) {
  return text.split(/(`[^`]+`)/).map((part) => (/^`.+`$/.test(part) ? h("code", {}, part.slice(1, -1)) : part));
}

// --- numbers ---

const HEX_FLOAT = /^(-?)0x([01])(?:\.([0-9a-f]+))?p([+-]\d+)$/;

// Python's float.hex(), "inf" and "nan" as a number; null for any other text.
function floatOf(text) {
  if (text === "nan") return NaN;
  if (text === "inf" || text === "-inf") return text === "inf" ? Infinity : -Infinity;
  const found = HEX_FLOAT.exec(text);
  if (!found) return null;
  const [, sign, lead, digits = "", exponent] = found;
  const magnitude = parseInt(lead + digits, 16) * 2 ** (Number(exponent) - 4 * digits.length);
  return sign ? -magnitude : magnitude;
}

// What a matrix tells in runs, each as [times, items].
const inFull = (runs) => runs.flatMap(([times, items]) => Array.from({ length: times }, () => items).flat());

const superscript = (number) => [...String(number)].map((sign) => "⁰¹²³⁴⁵⁶⁷⁸⁹⁻"["0123456789-".indexOf(sign)]).join("");

// The exponent where a number is a power of two; else null.
function exponentOf(number) {
  const exponent = Math.round(Math.log2(number));
  return number > 0 && Number.isFinite(number) && 2 ** exponent === number ? exponent : null;
}

function decimal(number) {
  if (Object.is(number, -0)) return "-0";
  return Number.isFinite(number) ? String(number) : { Infinity: "inf", "-Infinity": "-inf" }[number] ?? "nan";
}

// 256 = 2⁸; 2¹²⁷; 0.1
function readable(number) {
  const exponent = exponentOf(number);
  if (exponent === null || exponent === 0 || exponent === 1) return decimal(number);
  const power = `2${superscript(exponent)}`;
  return Math.abs(exponent) <= 24 ? `${decimal(number)} = ${power}` : power;
}

// In little room: the decimal, or the power where that has many digits.
const briefly = (number) => readable(number).split(" = ")[0];

function numberNode(text) {
  return h("span", { class: "number" }, readable(floatOf(text)), " ", h("span", { class: "hex" }, text));
}

// --- arrays ---

const asFloat32 = (pattern) => new Float32Array(Uint32Array.of(pattern).buffer)[0];

function halfOf(pattern) {
  const sign = pattern & 0x8000 ? -1 : 1;
  const [exponent, fraction] = [(pattern >> 10) & 0x1f, pattern & 0x3ff];
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 25) * (1024 + fraction) : 2 ** -24 * fraction);
}

// The fewest digits that give the same float32.
function shortest32(number) {
  if (!Number.isFinite(number) || Object.is(number, -0)) return decimal(number);
  for (let digits = 1; digits < 9; digits += 1) {
    const tried = Number(number.toPrecision(digits));
    if (Math.fround(tried) === number) return decimal(tried);
  }
  return decimal(number);
}

// One element: its hex digits, as its dtype reads them.
function elementOf(digits, dtype) {
  if (dtype.startsWith("complex")) {
    const [half, part] = [digits.length / 2, dtype === "complex64" ? "float32" : "float64"];
    const imaginary = elementOf(digits.slice(half), part);
    return `${elementOf(digits.slice(0, half), part)}${imaginary.startsWith("-") ? "" : "+"}${imaginary}i`;
  }
  const pattern = BigInt(`0x${digits}`);
  if (dtype === "bool") return pattern ? "True" : "False";
  if (dtype.startsWith("int")) return String(BigInt.asIntN(4 * digits.length, pattern));
  if (dtype === "float64") return decimal(new Float64Array(BigUint64Array.of(pattern).buffer)[0]);
  if (dtype === "float16") return decimal(halfOf(Number(pattern)));
  return shortest32(asFloat32(dtype === "bfloat16" ? (Number(pattern) << 16) >>> 0 : Number(pattern)));
}

function arrayNode(array) {
  const element = (digits) => h("span", { class: "element" }, elementOf(digits, array.dtype), h("span", { class: "hex" }, digits));
  const elements = (array.runs ?? [[1, array.bits]]).map(([times, items]) => [items.map(element), times > 1 ? h("span", { class: "times" }, ` × ${times}`) : null]);
  return h("span", { class: "array" }, h("span", { class: "dtype" }, `${array.dtype}(${array.shape.join("×")})`), elements);
}

// --- calls ---

const OPAQUE = ["handle", "optimizer", "cell", "saved", "adapter"];

const between = (nodes, mark) => nodes.flatMap((node, place) => (place ? [mark, node] : [node]));

function constant(value) {
  if (typeof value === "number") return briefly(value);
  return Array.isArray(value) ? `[${value.join(", ")}]` : typeof value === "string" ? value : { true: "True", false: "False" }[value] ?? "None";
}

function ruleNode(rule, defaults) {
  const changed = Object.entries(rule).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(defaults[name]));
  const said = changed.map(([name, value]) => h("span", { class: "member" }, `${name}=`, constant(value)));
  return ["rule(", between(said, ", "), ")"];
}

// A value in JSON's words, for people.
function valueNode(value, defaults) {
  const inner = (item) => valueNode(item, defaults);
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "number") return String(value);
  if (typeof value === "string") return floatOf(value) === null ? `"${value}"` : numberNode(value);
  if (Array.isArray(value)) return ["[", between(value.map(inner), ", "), "]"];
  if ("dtype" in value && "shape" in value) return arrayNode(value);
  if ("dict" in value) return ["{", between(Object.entries(value.dict).map(([key, item]) => [`${key}: `, inner(item)]), ", "), "}"];
  if ("tuple" in value) return ["(", between(value.tuple.map(inner), ", "), ")"];
  if ("repr" in value) return h("span", { class: "repr" }, value.repr);
  const kind = OPAQUE.find((name) => name in value);
  return kind ? h("span", { class: "token" }, `${kind} ${value[kind]}`) : ruleNode(value, defaults);
}

function callNode(call, defaults) {
  const told = call.arguments.map((argument, place) => {
    const flag = call.method.endsWith("update") && place === 1 && typeof argument === "boolean";
    return flag ? h("span", { class: argument ? "finite" : "overflow" }, argument ? "finite" : "overflow") : valueNode(argument, defaults);
  });
  const came = call.raised ? h("span", { class: "raised" }, `raised ${call.raised}`) : valueNode(call.result ?? null, defaults);
  return h("li", {}, h("span", { class: "method" }, call.method), "(", between(told, ", "), ") ", h("span", { class: "arrow" }, "→ "), came);
}
