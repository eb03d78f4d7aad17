/** The API client: typed by the server's OpenAPI document; refusals are thrown as `Refused`. */

import createClient from "openapi-fetch"
import type { components, paths } from "./schema"

export type Schemas = components["schemas"]
export type State = Schemas["ExecutionState"]
export type Summary = Schemas["ExecutionInfo"]
export type Execution = Schemas["Execution"]
export type HistoryEvent = Schemas["EventInfo"]
export type NodeStatus = Schemas["NodeInfo"]
export type Reason = Schemas["WaitInfo"]

/** A refusal of the server: its problem document, or that it cannot be reached. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    detail: string,
    readonly code: string | null = null,
    readonly findings: Schemas["Place"][] = [],
  ) {
    super(detail)
  }

  /** Whether the caller must sign in. */
  get isUnknownCaller(): boolean {
    return this.status === 401
  }

  /** Whether another try may help: the server is away or too busy. */
  get isTemporary(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 500
  }
}

export const api = createClient<paths>({ baseUrl: location.origin, credentials: "same-origin" })

api.use({
  async onResponse({ response }) {
    if (response.ok) return undefined
    throw await refusal(response)
  },
  onError({ error }) {
    return error instanceof Refused ? error : new Refused(0, "The server cannot be reached.")
  },
})

async function refusal(response: Response): Promise<Refused> {
  const type = response.headers.get("content-type") ?? ""
  if (!type.includes("json")) return new Refused(response.status, `The server answered ${response.status}.`)
  const problem = (await response.json()) as Partial<Schemas["Problem"]>
  const detail = problem.detail || problem.title || `The server answered ${response.status}.`
  return new Refused(response.status, detail, problem.code ?? null, problem.findings ?? [])
}

/** Return the data of a reply. Refusals have been thrown before. */
export async function data<T>(reply: Promise<{ data?: T }>): Promise<T> {
  return (await reply).data as T
}
