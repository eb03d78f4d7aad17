/** The timeline: a lane per node or task, queued time apart from run time; stretches in which nothing happened are shortened. */

import { useMemo } from "react"
import type { HistoryEvent } from "../api/client"
import { clock, duration, seconds, useNow } from "../parts/time"
import { axisOf, lanesOf, place, type Lane, type Phase, type Span, type Stretch } from "./history"

const NAMES = 170
const ROW = 26
const HEAD = 30
const WIDTH = 1000
const MOST_LANES = 300
const MOST_SPANS = 400

const PHASES: readonly Phase[] = ["queued", "running", "waiting", "completed", "failed", "cancelled"]

export function Timeline({ events, start, end }: { events: HistoryEvent[]; start: string; end: string | null }) {
  const now = useNow() / 1000
  const lanes = useMemo(() => lanesOf(events), [events])
  const until = end ? seconds(end) : now
  const from = Math.min(seconds(start), ...lanes.map((lane) => lane.first))
  const axis = useMemo(() => axisOf(lanes, from, Math.max(until, from + 0.001)), [lanes, from, until])
  if (lanes.length === 0) return <div className="empty">Nothing has run yet.</div>
  const shown = lanes.slice(0, MOST_LANES)
  const height = HEAD + shown.length * ROW + 8
  return (
    <div className="timeline">
      <svg viewBox={`0 0 ${NAMES + WIDTH + 20} ${height}`} role="img" aria-label={`Timeline of ${lanes.length} lanes, ${duration(until - from)}`}>
        {axis.map((stretch) => (
          <Axis key={stretch.from} stretch={stretch} height={height} />
        ))}
        {shown.map((lane, index) => (
          <Row key={lane.name} lane={lane} y={HEAD + index * ROW} axis={axis} until={until} />
        ))}
      </svg>
      {lanes.length > MOST_LANES && <p className="muted">{lanes.length - MOST_LANES} more lanes are not drawn.</p>}
      <p className="row muted legend">
        {PHASES.map((phase) => (
          <span key={phase} className="row">
            <svg width="10" height="10" aria-hidden="true">
              <rect width="10" height="10" rx="2" className={phase} />
            </svg>
            {phase}
          </span>
        ))}
      </p>
    </div>
  )
}

function Axis({ stretch, height }: { stretch: Stretch; height: number }) {
  const x = NAMES + stretch.at * WIDTH
  const width = stretch.width * WIDTH
  if (!stretch.isIdle) {
    return (
      <g>
        <line x1={x} x2={x} y1={HEAD - 6} y2={height} className="grid" />
        {width > 60 && (
          <text x={x + 4} y={16}>
            {clock(stretch.from)}
          </text>
        )}
      </g>
    )
  }
  return (
    <g>
      <rect x={x} y={HEAD - 6} width={width} height={height - HEAD + 6} className="idle" />
      <text x={x + width / 2} y={16} textAnchor="middle">
        {duration(stretch.until - stretch.from)}
      </text>
    </g>
  )
}

function Row({ lane, y, axis, until }: { lane: Lane; y: number; axis: Stretch[]; until: number }) {
  return (
    <g>
      <text x={NAMES - 10} y={y + 17} textAnchor="end">
        <title>{lane.name}</title>
        {lane.name.length > 24 ? `${lane.name.slice(0, 23)}…` : lane.name}
      </text>
      {lane.spans.slice(0, MOST_SPANS).map((span, index) => (
        <Bar key={index} span={span} y={y} axis={axis} until={until} />
      ))}
    </g>
  )
}

function Bar({ span, y, axis, until }: { span: Span; y: number; axis: Stretch[]; until: number }) {
  const end = span.until ?? until
  const from = NAMES + place(axis, span.from) * WIDTH
  const width = Math.max(NAMES + place(axis, end) * WIDTH - from, 2)
  const isQueued = span.phase === "queued"
  return (
    <rect x={from} y={y + (isQueued ? 10 : 5)} width={width} height={isQueued ? 5 : 15} rx={2} className={span.phase}>
      <title>
        {`${span.lane}: ${span.phase} ${duration(end - span.from)}${span.attempt > 1 ? `, attempt ${span.attempt}` : ""}`}
      </title>
    </rect>
  )
}
