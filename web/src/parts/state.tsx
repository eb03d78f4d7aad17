/** The mark of a state: each has a shape of its own, so that colour is never the only difference. */

export type Tone = "idle" | "running" | "waiting" | "good" | "bad"

const TONES: Record<string, Tone> = {
  PENDING: "idle",
  QUEUED: "idle",
  RUNNING: "running",
  WAITING: "waiting",
  PAUSED: "waiting",
  COMPLETED: "good",
  FAILED: "bad",
  CANCELLED: "idle",
  SKIPPED: "idle",
}

export function toneOf(state: string): Tone {
  return TONES[state] ?? "idle"
}

export function nameOf(state: string): string {
  return state.charAt(0) + state.slice(1).toLowerCase()
}

export function Mark({ state, size = 12 }: { state: string; size?: number }) {
  return (
    <svg width={size} height={size} viewBox="0 0 12 12" aria-hidden="true" className={state === "RUNNING" ? "pulse" : undefined}>
      {shapeOf(state)}
    </svg>
  )
}

function shapeOf(state: string) {
  switch (state) {
    case "RUNNING":
      return <circle cx="6" cy="6" r="4.5" fill="currentColor" />
    case "COMPLETED":
      return <path d="m2 6.500 2.800 2.800L10 3.500" fill="none" stroke="currentColor" strokeWidth="1.800" strokeLinecap="round" strokeLinejoin="round" />
    case "FAILED":
      return <path d="m3 3 6 6m0-6-6 6" fill="none" stroke="currentColor" strokeWidth="1.800" strokeLinecap="round" />
    case "CANCELLED":
      return (
        <g fill="none" stroke="currentColor" strokeWidth="1.500">
          <circle cx="6" cy="6" r="4.200" />
          <path d="m3.200 8.800 5.600-5.600" />
        </g>
      )
    case "PAUSED":
      return <path d="M4 3v6M8 3v6" stroke="currentColor" strokeWidth="2" strokeLinecap="round" />
    case "WAITING":
      return <path d="M3 2h6L6 6l3 4H3l3-4z" fill="none" stroke="currentColor" strokeWidth="1.400" strokeLinejoin="round" />
    case "SKIPPED":
      return <path d="M2 6h8" stroke="currentColor" strokeWidth="1.600" strokeDasharray="2 2" />
    default:
      return <circle cx="6" cy="6" r="4" fill="none" stroke="currentColor" strokeWidth="1.500" />
  }
}

export function StateBadge({ state }: { state: string }) {
  return (
    <span className={`state ${toneOf(state)}`}>
      <Mark state={state} />
      {nameOf(state)}
    </span>
  )
}
