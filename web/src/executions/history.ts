/** The timeline of an execution, computed from its events: a lane per node or task, with the spans in which it was queued, ran and waited. */

import type { HistoryEvent } from "../api/client"

export type Phase = "queued" | "running" | "waiting" | "failed" | "completed" | "cancelled"

export interface Span {
  lane: string
  scope: string
  from: number
  /** null: still open. */
  until: number | null
  phase: Phase
  attempt: number
}

export interface Lane {
  name: string
  spans: Span[]
  first: number
}

interface Times {
  queued_at?: number
  started_at?: number
  attempt?: number
}

const ENDS: Record<string, Phase> = {
  NodeCompleted: "completed",
  NodeFailed: "failed",
  NodeCancelled: "cancelled",
  NodeRetrying: "failed",
  TaskCompleted: "completed",
  TaskFailed: "failed",
  TaskCancelled: "cancelled",
  TaskRetrying: "failed",
}
const STARTS = new Set(["NodeStarted", "TaskStarted"])
const WAITS = new Set(["NodeWaiting"])

/** Return the lanes in the order in which they began. */
export function lanesOf(events: readonly HistoryEvent[]): Lane[] {
  const lanes = new Map<string, Lane>()
  const open = new Map<string, Span>()

  function add(span: Span): void {
    let lane = lanes.get(span.lane)
    if (lane === undefined) {
      lane = { name: span.lane, spans: [], first: span.from }
      lanes.set(span.lane, lane)
    }
    lane.first = Math.min(lane.first, span.from)
    lane.spans.push(span)
  }

  for (const event of events) {
    if (!event.node) continue
    const at = Date.parse(event.at) / 1000
    const scope = event.scope ?? ""
    const key = `${event.node}\n${scope}`
    const times = (typeof event.data === "object" && event.data !== null ? event.data : {}) as Times
    const base = { lane: event.node, scope, attempt: times.attempt ?? 1 }
    const ended = ENDS[event.kind]
    if (STARTS.has(event.kind) || WAITS.has(event.kind)) {
      close(open, key, at)
      const from = times.started_at ?? at
      const span: Span = { ...base, from, until: null, phase: STARTS.has(event.kind) ? "running" : "waiting" }
      open.set(key, span)
      add(span)
    } else if (ended !== undefined) {
      const before = open.get(key)
      open.delete(key)
      const from = times.started_at ?? before?.from ?? at
      if (before !== undefined && before.phase === "running") {
        before.from = from
        before.until = at
        before.phase = ended
      } else {
        if (before !== undefined) before.until = from
        add({ ...base, from, until: at, phase: ended })
      }
      if (times.queued_at !== undefined && from - times.queued_at > 0.0005) {
        add({ ...base, from: times.queued_at, until: from, phase: "queued" })
      }
    }
  }
  return [...lanes.values()].sort((a, b) => a.first - b.first)
}

function close(open: Map<string, Span>, key: string, at: number): void {
  const before = open.get(key)
  if (before !== undefined) before.until = at
}

/** A piece of the axis: a stretch in which something happened, or a shortened one in which nothing did. */
export interface Stretch {
  from: number
  until: number
  /** Position and width on the axis, as shares of its length. */
  at: number
  width: number
  isIdle: boolean
}

const IDLE_SHARE = 0.08
const IDLE_WIDTH = 0.05

/**
 * Shorten the stretches in which nothing began or ended: an approval of three days must not flatten the seconds around
 * it. A stretch is shortened if it is longer than a twelfth of all the time.
 */
export function axisOf(lanes: readonly Lane[], start: number, end: number): Stretch[] {
  const marks = new Set<number>([start, end])
  for (const lane of lanes) {
    for (const span of lane.spans) {
      marks.add(span.from)
      if (span.until !== null) marks.add(span.until)
    }
  }
  const times = [...marks].filter((time) => time >= start && time <= end).sort((a, b) => a - b)
  const total = Math.max(end - start, 1e-6)
  const pieces: { from: number; until: number; isIdle: boolean }[] = []
  for (let index = 1; index < times.length; index += 1) {
    const from = times[index - 1] as number
    const until = times[index] as number
    const isIdle = until - from > total * IDLE_SHARE && until - from > 5
    const last = pieces.at(-1)
    if (last !== undefined && !last.isIdle && !isIdle) last.until = until
    else pieces.push({ from, until, isIdle })
  }
  if (pieces.length === 0) return [{ from: start, until: end, at: 0, width: 1, isIdle: false }]
  const idle = pieces.filter((piece) => piece.isIdle).length
  const busy = pieces.reduce((sum, piece) => sum + (piece.isIdle ? 0 : piece.until - piece.from), 0)
  const room = busy > 0 ? 1 - Math.min(idle * IDLE_WIDTH, 0.6) : 0
  const idleWidth = idle > 0 ? (1 - room) / idle : 0
  let at = 0
  return pieces.map((piece) => {
    const width = piece.isIdle ? idleWidth : ((piece.until - piece.from) / busy) * (idle > 0 ? room : 1)
    const stretch = { ...piece, at, width }
    at += width
    return stretch
  })
}

/** Return the position of a time on the axis, from 0 to 1. */
export function place(axis: readonly Stretch[], time: number): number {
  for (const stretch of axis) {
    if (time <= stretch.until) {
      const length = stretch.until - stretch.from
      const share = length > 0 ? Math.max(time - stretch.from, 0) / length : 0
      return stretch.at + share * stretch.width
    }
  }
  return 1
}

/** One line about an event, for people. */
export function sentenceOf(event: HistoryEvent): string {
  const data = (typeof event.data === "object" && event.data !== null ? event.data : {}) as Record<string, unknown>
  const error = data["error"] as { message?: string } | undefined
  if (error?.message) return error.message
  if (event.arrived != null && event.expected != null) return `${event.arrived} of ${event.expected} arrived`
  if (typeof data["message"] === "string") return data["message"]
  if (typeof data["items"] === "number") return `${data["items"]} items`
  const then = data["then"] as { line?: number; awaits?: string } | undefined
  if (then?.awaits) return `line ${then.line}: awaits ${then.awaits}`
  if (typeof data["reason"] === "string") return data["reason"]
  if (typeof data["name"] === "string") return data["name"]
  return ""
}
