/** From a JSON Schema to the fields of a form, and from the texts of a form to the value. */

export interface Field {
  name: string
  title: string
  description: string
  kind: "text" | "number" | "boolean" | "choice" | "json"
  isWhole: boolean
  isRequired: boolean
  choices: string[]
  start: unknown
}

interface Part {
  type?: string | string[]
  title?: string
  description?: string
  default?: unknown
  enum?: unknown[]
  properties?: Record<string, Part>
  required?: string[]
}

/** Return the fields of an object schema; null if the value is no object with known fields. */
export function fieldsOf(schema: unknown): Field[] | null {
  if (typeof schema !== "object" || schema === null) return null
  const { properties, required = [] } = schema as Part
  if (properties === undefined || Object.keys(properties).length === 0) return null
  return Object.entries(properties).map(([name, part]) => {
    const types = [part.type ?? []].flat().filter((type) => type !== "null")
    return {
      name,
      title: part.title ?? name,
      description: part.description ?? "",
      kind: kindOf(part, types),
      isWhole: types[0] === "integer",
      isRequired: required.includes(name),
      choices: (part.enum ?? []).filter((each) => typeof each === "string"),
      start: part.default,
    }
  })
}

function kindOf(part: Part, types: string[]): Field["kind"] {
  if (part.enum !== undefined) return part.enum.every((each) => typeof each === "string") ? "choice" : "json"
  if (types.length !== 1) return "json"
  switch (types[0]) {
    case "string":
      return "text"
    case "number":
    case "integer":
      return "number"
    case "boolean":
      return "boolean"
    default:
      return "json"
  }
}

/** The text that a field begins with. */
export function textOf(field: Field): string {
  if (field.start === undefined || field.start === null) return ""
  return typeof field.start === "string" ? field.start : JSON.stringify(field.start)
}

/** Return the value of the form. Throws an error that names the field whose JSON is wrong. */
export function valueOf(schema: unknown, texts: Record<string, string>): unknown {
  const fields = fieldsOf(schema)
  if (fields === null) return readJson(texts[""] ?? "", "input")
  const value: Record<string, unknown> = {}
  for (const field of fields) {
    const text = texts[field.name] ?? textOf(field)
    if (text === "" && !(field.isRequired && field.kind === "text")) continue
    value[field.name] = read(field, text)
  }
  return value
}

function read(field: Field, text: string): unknown {
  switch (field.kind) {
    case "number":
      return Number(text)
    case "boolean":
      return text === "true"
    case "json":
      return readJson(text, field.title)
    default:
      return text
  }
}

function readJson(text: string, name: string): unknown {
  if (text.trim() === "") return null
  try {
    return JSON.parse(text)
  } catch (error) {
    throw new Error(`“${name}” is not JSON: ${error instanceof Error ? error.message : String(error)}`)
  }
}
