/** The filters of the list of executions, as the URL holds them. */

import type { State } from "../api/client"

export const STATES: readonly State[] = ["PENDING", "RUNNING", "PAUSED", "COMPLETED", "FAILED", "CANCELLED"]

export interface Filter {
  workflow?: string
  state?: State[]
  text?: string
  parent?: string
}

/** Read the filter from the URL. What is not a filter is left out: a URL is typed by people. */
export function readFilter(search: Record<string, unknown>): Filter {
  const filter: Filter = {}
  for (const name of ["workflow", "text", "parent"] as const) {
    const value = search[name]
    if (typeof value === "string" && value !== "") filter[name] = value
    else if (typeof value === "number") filter[name] = String(value)
  }
  const states = (Array.isArray(search["state"]) ? search["state"] : [search["state"]]).filter((each): each is State => STATES.includes(each as State))
  if (states.length > 0) filter.state = [...new Set(states)]
  return filter
}

/** Return the filter as parameters of the API. Tasks and timers of schedules are not runs that people look for. */
export function filterOf(filter: Filter) {
  const { workflow, state, text, parent } = filter
  return {
    ...(workflow ? { workflow } : {}),
    ...(state ? { state } : {}),
    ...(text ? { text } : {}),
    ...(parent ? { parent } : {}),
    ...(parent ? {} : { kind: ["graph", "script", "python"] as ("graph" | "script" | "python")[] }),
  }
}
