/** One node, or the execution itself: input, output, error, what it waits for. Large values are fetched when opened. */

import type { Execution, HistoryEvent, NodeStatus, Reason } from "../api/client"
import { Json } from "../parts/json"
import { StateBadge } from "../parts/state"
import { duration } from "../parts/time"
import type { GraphDocument } from "./layout"
import { useResults } from "./live"

interface Props {
  execution: Execution
  document: GraphDocument | null
  nodes: Record<string, NodeStatus>
  reasons: Reason[]
  events: HistoryEvent[]
  node: string | null
}

export function Inspector({ execution, document, nodes, reasons, events, node }: Props) {
  if (node === null) return <Whole execution={execution} />
  const parameters = document?.nodes.find((each) => each.id === node)?.parameters
  const status = nodes[node]
  return (
    <aside className="stack" aria-label={`Node ${node}`}>
      <div className="card">
        <header>
          <h2 className="cut">{node}</h2>
          {status && <StateBadge state={status.state} />}
        </header>
        <div className="body stack">
          {reasons
            .filter((each) => each.node === node)
            .map((each, index) => (
              <p key={index}>{each.sentence}</p>
            ))}
          <Runs events={events.filter((each) => each.node === node)} />
          <Output execution={execution.id} node={node} isDone={status?.state === "COMPLETED"} />
          {parameters && (
            <details>
              <summary>Parameters</summary>
              <Json value={parameters} />
            </details>
          )}
        </div>
      </div>
    </aside>
  )
}

function Whole({ execution }: { execution: Execution }) {
  const error = execution.error as { message?: string; code?: string; stack?: string[] } | null | undefined
  return (
    <aside className="stack" aria-label="Execution">
      {error && (
        <div className="card">
          <header>
            <h2>Error</h2>
            {error.code && <code>{error.code}</code>}
          </header>
          <div className="body stack">
            <p>{error.message}</p>
            {error.stack && <pre className="json">{error.stack.join("\n")}</pre>}
            <details>
              <summary>Everything about it</summary>
              <Json value={error} />
            </details>
          </div>
        </div>
      )}
      <Section title="Input" value={execution.input} />
      {execution.state === "COMPLETED" && <Section title="Output" value={execution.output} />}
    </aside>
  )
}

function Section({ title, value }: { title: string; value: unknown }) {
  return (
    <div className="card">
      <header>
        <h2>{title}</h2>
      </header>
      <div className="body">
        <Json value={value ?? null} />
      </div>
    </div>
  )
}

const MOST_RUNS = 20

function Runs({ events }: { events: HistoryEvent[] }) {
  const ended = events.filter((each) => /Completed|Failed|Retrying/.test(each.kind)).slice(-MOST_RUNS)
  if (ended.length === 0) return null
  return (
    <table>
      <thead>
        <tr>
          <th>Run</th>
          <th className="number">Queued</th>
          <th className="number">Ran</th>
        </tr>
      </thead>
      <tbody>
        {ended.map((event) => {
          const times = (event.data ?? {}) as { queued_at?: number; started_at?: number; error?: { message?: string } }
          const at = Date.parse(event.at) / 1000
          return (
            <tr key={event.seq}>
              <td>
                {event.kind.replace(/^(Node|Task)/, "").toLowerCase()}
                {event.scope && <span className="muted"> item {event.scope.split(":").at(-1)}</span>}
                {times.error?.message && <div className="muted">{times.error.message}</div>}
              </td>
              <td className="number">{times.queued_at && times.started_at ? duration(times.started_at - times.queued_at) : ""}</td>
              <td className="number">{times.started_at ? duration(at - times.started_at) : ""}</td>
            </tr>
          )
        })}
      </tbody>
    </table>
  )
}

function Output({ execution, node, isDone }: { execution: string; node: string; isDone: boolean }) {
  const results = useResults(execution, isDone)
  if (!isDone) return null
  const value = (results.data as Record<string, unknown> | undefined)?.[`$${node}`]
  return (
    <div className="stack">
      <h2>Output</h2>
      {results.isPending ? <p className="muted">Loading…</p> : <Json value={value ?? null} />}
    </div>
  )
}
