// The API's reference, drawn from its OpenAPI document. Text is only ever set as text, never as markup.
"use strict";

const METHODS = ["get", "post", "put", "patch", "delete"];

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "className") made.className = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

// Text with `words` of code in it.
function prose(text) {
  return text.split("`").map((part, index) => (index % 2 ? element("code", {}, part) : part));
}

// The first sentence, also where it goes on in the next line.
function firstSentence(text) {
  const paragraph = text.split("\n\n")[0].replaceAll("\n", " ");
  const end = paragraph.search(/[.;:](\s|$)/);
  return end < 0 ? paragraph : paragraph.slice(0, end + 1).replace(/[;:]$/, ".");
}

function resolve(api, schema, depth = 0) {
  if (!schema || depth > 20) return {};
  if (!schema.$ref) return schema;
  const found = schema.$ref.split("/").slice(1).reduce((at, part) => (at || {})[part], api);
  return resolve(api, found, depth + 1);
}

function example(api, given, depth = 0) {
  const schema = resolve(api, given);
  if (schema.example !== undefined) return schema.example;
  if (schema.examples && schema.examples.length) return schema.examples[0];
  if (schema.default !== undefined) return schema.default;
  if (schema.const !== undefined) return schema.const;
  if (schema.enum) return schema.enum[0];
  const choice = schema.anyOf || schema.oneOf || schema.allOf;
  if (choice) return example(api, choice[0], depth + 1);
  if (depth > 6) return null;
  if (schema.type === "array") return schema.items ? [example(api, schema.items, depth + 1)] : [];
  if (schema.type === "object" || schema.properties) {
    const fields = Object.entries(schema.properties || {});
    return Object.fromEntries(fields.map(([name, each]) => [name, example(api, each, depth + 1)]));
  }
  return { string: "text", integer: 0, number: 0, boolean: false }[schema.type] ?? null;
}

function typeName(api, given) {
  const schema = resolve(api, given);
  if (schema.enum) return schema.enum.join(" | ");
  const choice = schema.anyOf || schema.oneOf;
  if (choice) return choice.map((each) => typeName(api, each)).filter((name) => name !== "null").join(" | ");
  if (schema.type === "array") return `${typeName(api, schema.items)}, several`;
  return schema.format || schema.type || "any";
}

function parameterTable(api, parameters) {
  if (!parameters.length) return null;
  const rows = parameters.map((each) => {
    const field = element("input", { "data-name": each.name, "data-in": each.in, "aria-label": each.name });
    const about = each.description || (each.schema || {}).description || "";
    const kind = `${typeName(api, each.schema)}${each.required ? ", required" : ""}`;
    return element("tr", {}, element("td", {}, element("code", {}, each.name), element("small", {}, `${each.in}: ${kind}`)),
      element("td", {}, field), element("td", {}, about));
  });
  return element("table", {}, ...rows);
}

function addressOf(path, panel) {
  const query = new URLSearchParams();
  const headers = {};
  let address = path;
  for (const field of panel.querySelectorAll("[data-in]")) {
    const { name, in: place } = field.dataset;
    if (place === "path") {
      const value = path.includes(`{${name}:path}`) ? field.value.split("/").map(encodeURIComponent).join("/") : encodeURIComponent(field.value);
      address = address.replace(new RegExp(`\\{${name}(:path)?\\}`), () => value);
    } else if (field.value && place === "query") query.append(name, field.value);
    else if (field.value && place === "header") headers[name] = field.value;
  }
  return [query.size ? `${address}?${query}` : address, headers];
}

async function call(method, path, panel, output) {
  const [address, headers] = addressOf(path, panel);
  const key = document.getElementById("key").value.trim();
  const body = panel.querySelector("textarea");
  if (key) headers.Authorization = `Bearer ${key}`;
  if (body && body.value.trim()) headers["Content-Type"] = body.dataset.media;
  output.hidden = false;
  output.textContent = `${method} ${address} …`;
  try {
    const reply = await fetch(address, { method, headers, body: body && body.value.trim() ? body.value : undefined });
    const stream = (reply.headers.get("content-type") || "").startsWith("text/event-stream");
    output.textContent = `${reply.status} ${reply.statusText}\n\n`;
    if (stream) await follow(reply, output);
    else output.textContent += pretty(await reply.text());
  } catch (error) {
    output.textContent = `No answer: ${error.message}`;
  }
}

async function follow(reply, output) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done || output.hidden) return reader.cancel();
    output.textContent += value;
  }
}

function pretty(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}

function bodyField(api, operation) {
  const content = (operation.requestBody || {}).content;
  if (!content) return null;
  const media = content["application/json"] ? "application/json" : Object.keys(content)[0];
  const field = element("textarea", { "data-media": media, "aria-label": "Body", spellcheck: "false" });
  const given = content[media];
  const shown = given.example !== undefined ? given.example : example(api, given.schema);
  field.value = typeof shown === "string" ? shown : JSON.stringify(shown, null, 2);
  return element("p", {}, element("small", {}, `Body, ${media}`), field);
}

function replies(api, operation) {
  const rows = Object.entries(operation.responses || {}).map(([status, reply]) => {
    const json = (reply.content || {})["application/json"];
    const shape = json && Number(status) < 400 ? element("pre", {}, JSON.stringify(example(api, json.schema), null, 2)) : null;
    return element("tr", {}, element("td", {}, element("code", {}, status)), element("td", {}, reply.description || "", shape));
  });
  return element("details", {}, element("summary", {}, "Replies"), element("div", {}, element("table", {}, ...rows)));
}

function route(api, method, path, item, operation) {
  const name = method.toUpperCase();
  const panel = element("div", {});
  const output = element("pre", { hidden: "", "aria-live": "polite" });
  const button = element("button", { type: "button" }, "Try it");
  button.addEventListener("click", () => call(name, path, panel, output));
  const parameters = [...(item.parameters || []), ...(operation.parameters || [])].map((each) => resolve(api, each));
  panel.append(...[element("p", {}, ...prose(operation.description || "")), parameterTable(api, parameters), bodyField(api, operation),
    button, output, replies(api, operation)].filter((each) => each !== null));
  const first = firstSentence(operation.description || operation.summary || "");
  const made = element("details", { className: "route" }, element("summary", {}, element("span", { className: `method ${name}` }, name),
    element("span", { className: "path" }, path), element("span", { className: "text" }, "  ", ...prose(first))), panel);
  made.dataset.words = `${name} ${path} ${first}`.toLowerCase();
  return made;
}

function draw(api) {
  document.getElementById("version").textContent = api.info.version;
  document.getElementById("about").replaceChildren(...prose(api.info.description || ""));
  const sections = new Map();
  for (const [path, item] of Object.entries(api.paths)) {
    for (const method of METHODS.filter((each) => item[each])) {
      const tag = (item[method].tags || ["other"])[0];
      if (!sections.has(tag)) sections.set(tag, element("section", {}, element("h2", {}, tag)));
      sections.get(tag).append(route(api, method, path, item, item[method]));
    }
  }
  document.getElementById("routes").replaceChildren(...sections.values());
}

function filter(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  for (const section of document.querySelectorAll("section")) {
    let shown = 0;
    for (const each of section.querySelectorAll(".route")) {
      each.hidden = !words.every((word) => each.dataset.words.includes(word));
      shown += each.hidden ? 0 : 1;
    }
    section.hidden = shown === 0;
  }
}

document.getElementById("filter").addEventListener("input", (event) => filter(event.target.value));
document.getElementById("credentials").addEventListener("submit", (event) => event.preventDefault());
fetch("/v1/openapi.json").then((reply) => reply.json()).then(draw).catch((error) => {
  document.getElementById("about").textContent = `The reference could not be loaded: ${error.message}`;
});
