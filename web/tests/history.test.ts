import { describe, expect, test } from "vitest"
import type { HistoryEvent } from "../src/api/client"
import { axisOf, lanesOf, place, sentenceOf } from "../src/executions/history"

const START = Date.parse("2030-01-31T09:00:00Z") / 1000

function event(seq: number, kind: string, after: number, more: Partial<HistoryEvent> = {}): HistoryEvent {
  return { seq, kind, at: new Date((START + after) * 1000).toISOString(), node: "charge", scope: "", data: null, ...more }
}

describe("lanes", () => {
  test("a task was queued, ran, failed, and ran again", () => {
    const [lane] = lanesOf([
      event(1, "TaskStarted", 2, { data: { started_at: START + 2, attempt: 1 } }),
      event(2, "TaskRetrying", 3, { data: { queued_at: START, started_at: START + 2, attempt: 1 } }),
      event(3, "TaskStarted", 5, { data: { started_at: START + 5, attempt: 2 } }),
      event(4, "TaskCompleted", 6, { data: { queued_at: START + 5, started_at: START + 5, attempt: 2 } }),
    ])
    expect(lane?.spans.map((span) => [span.phase, span.from - START, (span.until ?? 0) - START, span.attempt])).toEqual([
      ["failed", 2, 3, 1],
      ["queued", 0, 2, 1],
      ["completed", 5, 6, 2],
    ])
    expect(lane?.first).toBe(START)
  })

  test("a node that was never seen to start still has a span, and one that runs is open", () => {
    const lanes = lanesOf([
      event(1, "NodeCompleted", 1, { node: "list", data: { started_at: START } }),
      event(2, "NodeStarted", 1, { node: "develop", scope: "/1:0" }),
      event(3, "NodeStarted", 2, { node: "develop", scope: "/1:1" }),
      event(4, "NodeCompleted", 3, { node: "develop", scope: "/1:0", data: { started_at: START + 1 } }),
    ])
    expect(lanes.map((lane) => lane.name)).toEqual(["list", "develop"])
    expect(lanes[1]?.spans.map((span) => [span.scope, span.phase, span.until === null])).toEqual([
      ["/1:0", "completed", false],
      ["/1:1", "running", true],
    ])
  })

  test("events of the execution itself make no lane", () => {
    expect(lanesOf([event(1, "ExecutionStarted", 0, { node: "" })])).toEqual([])
  })
})

describe("axis", () => {
  test("an approval of three days does not flatten the seconds around it", () => {
    const days = 3 * 86_400
    const lanes = lanesOf([
      event(1, "NodeCompleted", 4, { node: "ask", data: { started_at: START } }),
      event(2, "NodeCompleted", days + 4, { node: "approve", data: { started_at: START + 4 } }),
      event(3, "NodeCompleted", days + 8, { node: "tell", data: { started_at: START + days + 4 } }),
    ])
    const axis = axisOf(lanes, START, START + days + 8)
    expect(axis.map((stretch) => [stretch.isIdle, Math.round(stretch.until - stretch.from)])).toEqual([
      [false, 4],
      [true, days],
      [false, 4],
    ])
    const middle = axis[1]
    expect(middle?.width).toBeLessThan(0.1)
    expect(place(axis, START + 2)).toBeCloseTo((axis[0]?.width ?? 0) / 2)
    expect(place(axis, START + days + 8)).toBeCloseTo(1)
    expect(axis.reduce((sum, stretch) => sum + stretch.width, 0)).toBeCloseTo(1)
  })

  test("positions grow with time, also where nothing has a length", () => {
    const axis = axisOf([], START, START)
    expect(place(axis, START)).toBe(0)
    const busy = axisOf(lanesOf([event(1, "NodeCompleted", 1, { data: { started_at: START } })]), START, START + 2)
    const places = [0, 0.5, 1, 1.5, 2].map((after) => place(busy, START + after))
    expect([...places].sort((a, b) => a - b)).toEqual(places)
  })
})

describe("sentences", () => {
  test.each([
    [event(1, "TaskFailed", 0, { data: { error: { message: "no address" } } }), "no address"],
    [event(1, "NodeWaiting", 0, { arrived: 2, expected: 3 }), "2 of 3 arrived"],
    [event(1, "NodeCompleted", 0, { data: { items: 24 } }), "24 items"],
    [event(1, "TimerFired", 0, { data: { then: { line: 25, awaits: "task ship" } } }), "line 25: awaits task ship"],
    [event(1, "NodeCompleted", 0), ""],
  ])("%#", (given, expected) => {
    expect(sentenceOf(given)).toBe(expected)
  })
})
