import { describe, expect, test } from "vitest"
import { readFilter } from "../src/executions/filter"
import { fieldsOf, valueOf } from "../src/parts/schema"
import { duration } from "../src/parts/time"

const SCHEMA = {
  type: "object",
  required: ["who", "cents"],
  properties: {
    who: { type: "string" },
    cents: { type: "integer", default: 100 },
    urgent: { type: "boolean" },
    kind: { enum: ["travel", "food"] },
    items: { type: "array" },
    either: { type: ["string", "number"] },
    note: { type: ["string", "null"] },
  },
}

describe("forms of schemas", () => {
  test("each field has the control of its type", () => {
    expect(fieldsOf(SCHEMA)?.map((field) => [field.name, field.kind, field.isRequired])).toEqual([
      ["who", "text", true],
      ["cents", "number", true],
      ["urgent", "boolean", false],
      ["kind", "choice", false],
      ["items", "json", false],
      ["either", "json", false],
      ["note", "text", false],
    ])
  })

  test("fields that are left empty are not sent; a default is", () => {
    expect(valueOf(SCHEMA, { who: "Ada" })).toEqual({ who: "Ada", cents: 100 })
    expect(valueOf(SCHEMA, { who: "", cents: "5", urgent: "false", items: "[1]" })).toEqual({ who: "", cents: 5, urgent: false, items: [1] })
  })

  test("a field that is not JSON is named", () => {
    expect(() => valueOf(SCHEMA, { who: "Ada", items: "[1" })).toThrow(/“items” is not JSON/)
    expect(() => valueOf(null, { "": "{" })).toThrow(/“input” is not JSON/)
  })

  test("without fields the input is JSON, and empty means none", () => {
    expect(fieldsOf({ type: "string" })).toBeNull()
    expect(valueOf({ type: "string" }, { "": '"o-7"' })).toBe("o-7")
    expect(valueOf(null, {})).toBeNull()
  })
})

test("filters are read from a URL that people type", () => {
  expect(readFilter({ state: "FAILED", text: 7, workflow: "", color: "red" })).toEqual({ state: ["FAILED"], text: "7" })
  expect(readFilter({ state: ["RUNNING", "WALKING", "RUNNING"] })).toEqual({ state: ["RUNNING"] })
})

test.each([
  [0.0351, "35ms"],
  [1.24, "1.2s"],
  [59.6, "1m"],
  [65, "1m 5s"],
  [3600, "1h"],
  [3 * 86_400 + 7200, "3d 2h"],
])("a duration of %d seconds is %s", (given, expected) => {
  expect(duration(given)).toBe(expected)
})
