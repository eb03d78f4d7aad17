/** The overview: problems first, each one click from its cure; then what runs now. */

import { useQuery } from "@tanstack/react-query"
import { Link } from "@tanstack/react-router"
import type { ReactNode } from "react"
import { api, data, type State } from "../api/client"
import { Refusal } from "../parts/refusal"
import { StateBadge } from "../parts/state"
import { Ago, Elapsed } from "../parts/time"
import "./overview.css"

const KINDS: ("graph" | "script" | "python")[] = ["graph", "script", "python"]
const LAST = 8

function useLast(states: State[]) {
  return useQuery({
    queryKey: ["executions", "last", states],
    queryFn: () => data(api.GET("/v1/executions", { params: { query: { state: states, kind: KINDS, limit: LAST } } })),
    refetchInterval: 20_000,
  })
}

export function Overview() {
  const health = useQuery({ queryKey: ["health"], queryFn: () => data(api.GET("/v1/health")), refetchInterval: 5000 })
  const failed = useLast(["FAILED"])
  const running = useLast(["RUNNING", "PAUSED"])
  const dead = useQuery({ queryKey: ["dead", "count"], queryFn: () => data(api.GET("/v1/dead", { params: { query: { limit: 100 } } })), refetchInterval: 15_000 })
  const approvals = useQuery({ queryKey: ["approvals"], queryFn: () => data(api.GET("/v1/approvals", { params: { query: { limit: 200 } } })), refetchInterval: 10_000 })
  const queues = useQuery({ queryKey: ["queues"], queryFn: () => data(api.GET("/v1/queues")), refetchInterval: 5000 })
  const workers = useQuery({ queryKey: ["workers"], queryFn: () => data(api.GET("/v1/workers")), refetchInterval: 5000 })
  const alive = workers.data?.workers.filter((each) => each.state === "alive").length
  const ready = queues.data?.queues.reduce((sum, each) => sum + each.ready, 0)
  const failures = failed.data?.items ?? []
  const troubles = health.data?.parts.filter((part) => part.status !== "ok") ?? []
  const hasProblems = troubles.length > 0 || (dead.data?.items.length ?? 0) > 0
  return (
    <>
      <h1>Overview</h1>
      {health.isError && <Refusal error={health.error} />}
      {hasProblems && (
        <ul className="why-list" aria-label="Problems">
          {troubles.map((part) => (
            <li key={part.name} className="notice bad">
              <strong>{part.name}</strong> {part.detail}
            </li>
          ))}
          {(dead.data?.items.length ?? 0) > 0 && (
            <li className="notice bad spread">
              <span>
                {dead.data?.items.length}
                {dead.data?.next ? "+" : ""} {dead.data?.items.length === 1 ? "piece of work is" : "pieces of work are"} stuck
              </span>
              <Link to="/dead">Show</Link>
            </li>
          )}
        </ul>
      )}
      <div className="tiles">
        <Tile name="Running" value={countOf(running.data)} to="/executions" search={{ state: ["RUNNING"] }} />
        <Tile name="Failed" value={countOf(failed.data)} to="/executions" search={{ state: ["FAILED"] }} isBad={failures.length > 0} />
        <Tile name="Wait for a decision" value={approvals.data ? String(approvals.data.items.length) : "–"} to="/approvals" />
        <Tile name="Ready in queues" value={ready === undefined ? "–" : String(ready)} to="/workers" />
        <Tile name="Workers" value={alive === undefined ? "–" : String(alive)} to="/workers" isBad={alive === 0} />
      </div>
      <div className="columns">
        <List title="Running now" empty="Nothing runs.">
          {(running.data?.items ?? []).map((each) => (
            <li key={each.id}>
              <StateBadge state={each.state} />
              <Link to="/executions/$id" params={{ id: each.id }} className="cut plain">
                {each.workflow}
              </Link>
              <span className="muted number">
                <Elapsed since={each.created_at} />
              </span>
            </li>
          ))}
        </List>
        <List title="Failed last" empty="Nothing has failed.">
          {failures.map((each) => (
            <li key={each.id}>
              <StateBadge state={each.state} />
              <Link to="/executions/$id" params={{ id: each.id }} className="cut plain">
                {each.workflow}
              </Link>
              <span className="muted number">{each.ended_at && <Ago at={each.ended_at} />}</span>
            </li>
          ))}
        </List>
      </div>
    </>
  )
}

function countOf(page: { items: unknown[]; next?: string | null } | undefined): string {
  if (page === undefined) return "–"
  return page.next ? `${page.items.length}+` : String(page.items.length)
}

function Tile(props: { name: string; value: string; to: "/executions" | "/approvals" | "/workers"; search?: object; isBad?: boolean }) {
  return (
    <Link to={props.to} search={props.search ?? {}} className={props.isBad ? "tile bad" : "tile"}>
      <span>{props.name}</span>
      <strong>{props.value}</strong>
    </Link>
  )
}

function List({ title, empty, children }: { title: string; empty: string; children: ReactNode[] }) {
  return (
    <section className="card">
      <header>
        <h2>{title}</h2>
      </header>
      {children.length === 0 ? <div className="empty">{empty}</div> : <ul className="last">{children}</ul>}
    </section>
  )
}
