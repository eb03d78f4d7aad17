/** One execution: its graph or source, timeline, events, and what can be done with it. */

import * as Tabs from "@radix-ui/react-tabs"
import { Link, useParams } from "@tanstack/react-router"
import { useState } from "react"
import type { Execution as Details, Reason } from "../api/client"
import { Refusal } from "../parts/refusal"
import { StateBadge } from "../parts/state"
import { Ago, Countdown, Elapsed } from "../parts/time"
import { Approve } from "../approvals/approve"
import { Actions } from "./actions"
import { useDefinition } from "./definition"
import { Events } from "./events"
import { Graph } from "./graph"
import { Inspector } from "./inspector"
import { Tags } from "./list"
import { isEnded, useExecution, useHistory, useNodes, usePicture, useWhy } from "./live"
import { Source } from "./source"
import { Timeline } from "./timeline"

export function ExecutionPage() {
  const { id } = useParams({ from: "/executions/$id" })
  const execution = useExecution(id)
  if (execution.isPending) return <p className="muted">Loading…</p>
  if (execution.isError) return <Refusal error={execution.error} onRetry={() => void execution.refetch()} />
  return <Detail key={id} execution={execution.data} />
}

function Detail({ execution }: { execution: Details }) {
  const isOver = isEnded(execution.state)
  const isGraph = execution.kind === "graph"
  const isScripted = execution.kind === "script" || execution.kind === "python"
  const { events } = useHistory(execution.id)
  const nodes = useNodes(execution.id, isGraph)
  const why = useWhy(execution.id, isOver)
  const picture = usePicture(execution.id, isScripted)
  const definition = useDefinition(execution)
  const [node, setNode] = useState<string | null>(null)
  const first = isGraph ? "graph" : isScripted ? "source" : "timeline"
  const inspector = (
    <Inspector execution={execution} document={definition.data?.document ?? null} nodes={nodes.data ?? {}} reasons={why.data?.reasons ?? []} events={events} node={node} />
  )
  return (
    <>
      <Head execution={execution} />
      {!isOver && <Why execution={execution} reasons={why.data?.reasons ?? []} />}
      <Tabs.Root defaultValue={first}>
        <Tabs.List className="tabs" aria-label="Views">
          {isGraph && <Tabs.Trigger value="graph">Graph</Tabs.Trigger>}
          {isScripted && <Tabs.Trigger value="source">Source</Tabs.Trigger>}
          <Tabs.Trigger value="timeline">Timeline</Tabs.Trigger>
          <Tabs.Trigger value="events">Events</Tabs.Trigger>
        </Tabs.List>
        {isGraph && (
          <Tabs.Content value="graph" className="panes">
            {definition.isError ? (
              <Refusal error={definition.error} />
            ) : definition.data?.document ? (
              <Graph document={definition.data.document} nodes={nodes.data ?? {}} reasons={why.data?.reasons ?? []} isOver={isOver} selected={node} onSelect={setNode} />
            ) : (
              <div className="graph card" aria-busy="true" />
            )}
            {inspector}
          </Tabs.Content>
        )}
        {isScripted && (
          <Tabs.Content value="source">
            {definition.data && <Source definition={definition.data} picture={picture.data ?? null} failedLine={failedLine(execution)} />}
            <div className="after-source">{inspector}</div>
          </Tabs.Content>
        )}
        <Tabs.Content value="timeline">
          <div className="card">
            <Timeline events={events} start={execution.created_at} end={execution.ended_at ?? null} />
          </div>
        </Tabs.Content>
        <Tabs.Content value="events">
          <Events events={events} />
        </Tabs.Content>
      </Tabs.Root>
    </>
  )
}

/** The line at which a script or Python workflow failed, from the innermost entry of its stack. */
function failedLine(execution: Details): number | null {
  const stack = (execution.error as { stack?: string[] } | null | undefined)?.stack
  const found = stack?.[0] ? /:(\d+)(?::\d+)?\)?$/.exec(stack[0]) : null
  return found ? Number(found[1]) : null
}

function Head({ execution }: { execution: Details }) {
  return (
    <div className="execution-head">
      <div className="spread">
        <div className="row">
          <h1>
            <Link to="/workflows/$name" params={{ name: execution.workflow }} className="plain">
              {execution.workflow}
            </Link>
          </h1>
          <StateBadge state={execution.state} />
        </div>
        <Actions execution={execution} />
      </div>
      <div className="execution-facts">
        <span className="mono" title="Id of the execution">
          {execution.id}
        </span>
        <span>version {execution.version}</span>
        <span>
          started <Ago at={execution.created_at} />
        </span>
        <span>
          {execution.ended_at ? "took " : "for "}
          <Elapsed since={execution.created_at} until={execution.ended_at ?? null} />
        </span>
        {execution.parent && (
          <span>
            {execution.relation} of{" "}
            <Link to="/executions/$id" params={{ id: execution.parent }} className="mono">
              {execution.parent.slice(-8)}
            </Link>
          </span>
        )}
        <Tags tags={execution.tags ?? {}} />
      </div>
    </div>
  )
}

const SHOWN = 3

/** Why it waits, in sentences, with what helps. */
function Why({ execution, reasons }: { execution: Details; reasons: Reason[] }) {
  const [areAll, showAll] = useState(false)
  if (reasons.length === 0) return null
  const shown = areAll ? reasons : reasons.slice(0, SHOWN)
  return (
    <ul className="why-list" aria-label="Why it waits">
      {shown.map((each, index) => (
        <li key={index} className={each.lost || each.served === false ? "notice waiting" : "notice"}>
          <div className="spread">
            <span>
              {each.sentence}
              {each.due && (
                <span className="muted">
                  {" "}
                  · <Countdown due={each.due} />
                </span>
              )}
            </span>
            {each.kind === "approval" && each.node && <Approve execution={execution.id} node={each.node} />}
            {each.execution && (
              <Link to="/executions/$id" params={{ id: each.execution }}>
                Open it
              </Link>
            )}
          </div>
          {each.hint && <p className="muted">{each.hint}</p>}
        </li>
      ))}
      {reasons.length > SHOWN && !areAll && (
        <li>
          <button type="button" className="button small quiet" onClick={() => showAll(true)}>
            {reasons.length - SHOWN} more
          </button>
        </li>
      )}
    </ul>
  )
}
