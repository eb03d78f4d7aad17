/** Times and durations, in words that stay the same width while they count. */

import { useSyncExternalStore } from "react"

const listeners = new Set<() => void>()
let now = Date.now()
let timer: ReturnType<typeof setInterval> | undefined

function subscribe(listener: () => void): () => void {
  listeners.add(listener)
  timer ??= setInterval(() => {
    now = Date.now()
    for (const each of listeners) each()
  }, 1000)
  return () => {
    listeners.delete(listener)
    if (listeners.size === 0) {
      clearInterval(timer)
      timer = undefined
    }
  }
}

/** The present time in milliseconds; renders again each second. All users share one timer. */
export function useNow(): number {
  return useSyncExternalStore(subscribe, () => now)
}

const UNITS: readonly [number, string][] = [
  [86_400, "d"],
  [3_600, "h"],
  [60, "m"],
]

/** A duration in at most two units: `2d 3h`, `4m 5s`, `1.2s`, `35ms`. */
export function duration(seconds: number): string {
  if (seconds < 0) return "0s"
  if (seconds < 1) return `${Math.round(seconds * 1000)}ms`
  if (seconds < 10) return `${seconds.toFixed(1)}s`
  const whole = Math.round(seconds)
  for (const [index, [size, unit]] of UNITS.entries()) {
    if (whole < size) continue
    const [next, nextUnit] = UNITS[index + 1] ?? [1, "s"]
    const rest = Math.floor((whole % size) / next)
    return rest > 0 ? `${Math.floor(whole / size)}${unit} ${rest}${nextUnit}` : `${Math.floor(whole / size)}${unit}`
  }
  return `${whole}s`
}

export function seconds(time: string): number {
  return Date.parse(time) / 1000
}

const FULL = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" })

/** A moment as "3m ago" or "in 5s", with the full time on hover. */
export function Ago({ at }: { at: string }) {
  const passed = useNow() / 1000 - seconds(at)
  const text = Math.abs(passed) < 1 ? "now" : passed > 0 ? `${coarse(passed)} ago` : `in ${coarse(-passed)}`
  return (
    <time dateTime={at} title={FULL.format(new Date(at))}>
      {text}
    </time>
  )
}

function coarse(passed: number): string {
  return passed < 60 ? `${Math.round(passed)}s` : (duration(passed).split(" ")[0] ?? "")
}

/** The time from `since` until `until`, or until now while it is open. */
export function Elapsed({ since, until }: { since: string; until?: string | null }) {
  const present = useNow()
  const end = until ? Date.parse(until) : present
  return <span>{duration(Math.max(end - Date.parse(since), 0) / 1000)}</span>
}

/** What is left until `due`. */
export function Countdown({ due }: { due: string }) {
  const left = Date.parse(due) - useNow()
  return <span title={FULL.format(new Date(due))}>{left <= 0 ? "due" : coarseLeft(left / 1000)}</span>
}

function coarseLeft(left: number): string {
  return left < 60 ? `${Math.ceil(left)}s` : duration(left)
}

export function clock(at: number): string {
  return new Date(at * 1000).toLocaleTimeString(undefined, { hour12: false })
}
