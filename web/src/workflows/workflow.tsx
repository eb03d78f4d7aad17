/** One workflow: its graph or source, versions, last executions, and the form that starts it. */

import * as Tabs from "@radix-ui/react-tabs"
import { useQuery } from "@tanstack/react-query"
import { Link, useNavigate, useParams } from "@tanstack/react-router"
import { useState } from "react"
import { api, data, type Schemas } from "../api/client"
import { Graph } from "../executions/graph"
import type { GraphDocument } from "../executions/layout"
import { ActionDialog } from "../parts/dialog"
import { Refusal } from "../parts/refusal"
import { SchemaForm, valueOf } from "../parts/schema-form"
import { StateBadge } from "../parts/state"
import { Ago, Elapsed } from "../parts/time"
import { useMay } from "../session/session"

export function WorkflowPage() {
  const { name } = useParams({ from: "/workflows/$name" })
  const [version, setVersion] = useState("latest")
  const [isStarting, setStarting] = useState(false)
  const mayRun = useMay("run")
  const definition = useQuery({
    queryKey: ["definitions", "one", name, version],
    queryFn: () => data(api.GET("/v1/definitions/{name}", { params: { path: { name }, query: version === "latest" ? {} : { version } } })),
  })
  const versions = useQuery({
    queryKey: ["definitions", "versions", name],
    queryFn: () => data(api.GET("/v1/definitions/{name}/versions", { params: { path: { name }, query: { limit: 100 } } })),
  })
  if (definition.isPending) return <p className="muted">Loading…</p>
  if (definition.isError) return <Refusal error={definition.error} onRetry={() => void definition.refetch()} />
  const found = definition.data
  return (
    <>
      <div className="spread">
        <h1>{name}</h1>
        <div className="row">
          <label className="row">
            <span className="muted">Version</span>
            <select value={version} onChange={(event) => setVersion(event.target.value)}>
              <option value="latest">latest ({versions.data ? maximum(versions.data) : found.version})</option>
              {itemsOf(versions.data).map((each) => (
                <option key={each.version} value={String(each.version)}>
                  {each.version}
                  {each.aliases?.length ? ` ${each.aliases.join(", ")}` : ""}
                </option>
              ))}
            </select>
          </label>
          {mayRun && (
            <button type="button" className="button primary" onClick={() => setStarting(true)}>
              Start…
            </button>
          )}
        </div>
      </div>
      <Tabs.Root defaultValue="definition">
        <Tabs.List className="tabs" aria-label="Views">
          <Tabs.Trigger value="definition">{found.kind === "graph" ? "Graph" : "Source"}</Tabs.Trigger>
          <Tabs.Trigger value="executions">Executions</Tabs.Trigger>
          {found.kind === "graph" && <Tabs.Trigger value="text">Document</Tabs.Trigger>}
        </Tabs.List>
        <Tabs.Content value="definition">
          {found.kind === "graph" && found.document ? (
            <Graph document={found.document as unknown as GraphDocument} nodes={{}} reasons={[]} isOver={false} selected={null} onSelect={() => undefined} />
          ) : (
            <Text text={found.source} first={found.first_line ?? 1} />
          )}
        </Tabs.Content>
        <Tabs.Content value="executions">
          <LastExecutions name={name} />
        </Tabs.Content>
        {found.kind === "graph" && (
          <Tabs.Content value="text">
            <Text text={found.source} first={1} />
          </Tabs.Content>
        )}
      </Tabs.Root>
      {isStarting && <Start definition={found} onClose={() => setStarting(false)} />}
    </>
  )
}

function itemsOf(versions: unknown): Schemas["VersionInfo"][] {
  if (Array.isArray(versions)) return versions as Schemas["VersionInfo"][]
  const page = versions as { versions?: Schemas["VersionInfo"][]; items?: Schemas["VersionInfo"][] } | undefined
  return page?.versions ?? page?.items ?? []
}

function maximum(versions: unknown): number {
  return Math.max(...itemsOf(versions).map((each) => each.version), 1)
}

function Text({ text, first }: { text: string; first: number }) {
  return (
    <div className="card">
      <pre className="source" tabIndex={0} aria-label="Source">
        {text
          .replace(/\n$/, "")
          .split("\n")
          .map((line, index) => (
            <div key={index} className="line">
              <span>{first + index}</span>
              <span>{line || " "}</span>
            </div>
          ))}
      </pre>
    </div>
  )
}

function LastExecutions({ name }: { name: string }) {
  const executions = useQuery({
    queryKey: ["executions", "of", name],
    queryFn: () => data(api.GET("/v1/executions", { params: { query: { workflow: name, limit: 20 } } })),
  })
  const items = executions.data?.items ?? []
  return (
    <div className="card table-frame">
      {items.length === 0 ? (
        <div className="empty">{executions.isPending ? "Loading…" : "It has not run yet."}</div>
      ) : (
        <table>
          <tbody>
            {items.map((each) => (
              <tr key={each.id} className="link">
                <td>
                  <StateBadge state={each.state} />
                </td>
                <td>
                  <Link to="/executions/$id" params={{ id: each.id }} className="mono">
                    {each.idempotency_key || each.id}
                  </Link>
                </td>
                <td className="muted">v{each.version}</td>
                <td className="number">
                  <Ago at={each.created_at} />
                </td>
                <td className="number">
                  <Elapsed since={each.created_at} until={each.ended_at ?? null} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </div>
  )
}

function Start({ definition, onClose }: { definition: Schemas["DefinitionDetail"]; onClose: () => void }) {
  const navigate = useNavigate()
  const [texts, setTexts] = useState<Record<string, string>>({})
  const [key, setKey] = useState("")
  async function start(): Promise<void> {
    const started = await data(
      api.POST("/v1/executions", {
        body: {
          workflow: definition.name,
          version: definition.version,
          input: valueOf(definition.input_schema, texts),
          ...(key ? { idempotency_key: key } : {}),
        },
      }),
    )
    await navigate({ to: "/executions/$id", params: { id: started.id } })
  }
  return (
    <ActionDialog title={`Start ${definition.name}`} action="Start" onClose={onClose} onAct={start}>
      <SchemaForm schema={definition.input_schema} texts={texts} onChange={setTexts} />
      <label className="field">
        <span>Idempotency key</span>
        <input type="text" value={key} onChange={(event) => setKey(event.target.value)} placeholder="Optional" />
        <span className="hint">The same key returns the first execution instead of starting another.</span>
      </label>
    </ActionDialog>
  )
}
