/** The list of executions: filters in the URL, live, without rows that jump under the pointer; bulk actions with a dry run. */

import { keepPreviousData, useInfiniteQuery, useMutation, useQuery } from "@tanstack/react-query"
import { Link, useNavigate, useSearch } from "@tanstack/react-router"
import { useEffect, useMemo, useRef, useState } from "react"
import { api, data, type Schemas, type State, type Summary } from "../api/client"
import { ActionDialog } from "../parts/dialog"
import { Refusal } from "../parts/refusal"
import { nameOf, StateBadge } from "../parts/state"
import { Ago, Elapsed } from "../parts/time"
import { useMay } from "../session/session"
import { filterOf, readFilter, STATES, type Filter } from "./filter"

const PAGE = 50

export function Executions() {
  const filter = useSearch({ strict: false, select: readFilter }) as Filter
  const navigate = useNavigate()
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set())
  const [action, setAction] = useState<"cancel" | "retry" | null>(null)
  const mayRun = useMay("run")
  const list = useInfiniteQuery({
    queryKey: ["executions", "list", filter],
    queryFn: ({ pageParam }) => data(api.GET("/v1/executions", { params: { query: { ...filterOf(filter), limit: PAGE, cursor: pageParam } } })),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next ?? null,
    placeholderData: keepPreviousData,
    refetchInterval: 20_000,
  })
  const fresh = useMemo(() => (list.data?.pages ?? []).flatMap((page) => page.items), [list.data])
  const { rows, newer, showNewer, hold } = useSteady(fresh, JSON.stringify(filter))

  function change(part: Partial<Filter>): void {
    setSelected(new Set())
    void navigate({ to: "/executions", search: clean({ ...filter, ...part }), replace: true })
  }

  return (
    <>
      <div className="spread">
        <h1>Executions</h1>
      </div>
      <Filters filter={filter} onChange={change} />
      {list.isError && <Refusal error={list.error} onRetry={() => void list.refetch()} />}
      {selected.size > 0 && (
        <div className="card selection">
          <div className="body row" role="toolbar" aria-label="Actions on the selection">
            <strong>{selected.size} selected</strong>
            <button type="button" className="button small" onClick={() => setAction("retry")}>
              Retry…
            </button>
            <button type="button" className="button small danger" onClick={() => setAction("cancel")}>
              Cancel…
            </button>
            <button type="button" className="button small quiet" onClick={() => setSelected(new Set())}>
              Clear
            </button>
          </div>
        </div>
      )}
      {newer > 0 && (
        <button type="button" className="button newer" onClick={showNewer}>
          {newer} newer {newer === 1 ? "execution" : "executions"}
        </button>
      )}
      <div className="card table-frame" onPointerEnter={() => hold(true)} onPointerLeave={() => hold(false)}>
        {rows.length === 0 && !list.isPending ? <Empty filter={filter} /> : <Table rows={rows} selected={selected} onSelect={mayRun ? setSelected : null} />}
      </div>
      {list.hasNextPage && (
        <button type="button" className="button more" disabled={list.isFetchingNextPage} onClick={() => void list.fetchNextPage()}>
          {list.isFetchingNextPage ? "Loading…" : "Older executions"}
        </button>
      )}
      {action && <Bulk action={action} ids={[...selected]} onClose={() => setAction(null)} onDone={() => setSelected(new Set())} />}
    </>
  )
}

function clean(filter: Filter): Filter {
  return Object.fromEntries(Object.entries(filter).filter(([, value]) => value !== undefined && value !== "" && !(Array.isArray(value) && value.length === 0)))
}

/** Keep the rows where they are while the pointer is over them: their content changes, new ones wait above. */
function useSteady(fresh: Summary[], filter: string) {
  const [isHeld, hold] = useState(false)
  const [top, setTop] = useState<string | null>(null)
  const last = useRef(filter)
  useEffect(() => {
    if (last.current !== filter) {
      last.current = filter
      setTop(null)
      hold(false)
    }
  }, [filter])
  useEffect(() => {
    if (!isHeld) setTop(fresh[0]?.id ?? null)
  }, [isHeld, fresh])
  const at = isHeld && top !== null ? fresh.findIndex((each) => each.id === top) : 0
  const newer = Math.max(at, 0)
  return { rows: fresh.slice(newer), newer, hold, showNewer: () => setTop(fresh[0]?.id ?? null) }
}

function Filters({ filter, onChange }: { filter: Filter; onChange: (part: Partial<Filter>) => void }) {
  const [text, setText] = useState(filter.text ?? "")
  const workflows = useQuery({
    queryKey: ["definitions", "all"],
    queryFn: () => data(api.GET("/v1/definitions", { params: { query: { limit: 500 } } })),
    staleTime: 30_000,
  })
  useEffect(() => setText(filter.text ?? ""), [filter.text])
  return (
    <form
      className="filters"
      role="search"
      onSubmit={(event) => {
        event.preventDefault()
        onChange({ text })
      }}
    >
      <label>
        <span className="hidden-text">Search</span>
        <input type="search" placeholder="Search ids, tags, workflows…" value={text} onChange={(event) => setText(event.target.value)} onBlur={() => text !== (filter.text ?? "") && onChange({ text })} />
      </label>
      <label>
        <span className="hidden-text">Workflow</span>
        <select value={filter.workflow ?? ""} onChange={(event) => onChange({ workflow: event.target.value })}>
          <option value="">All workflows</option>
          {(workflows.data?.items ?? []).map((each) => (
            <option key={each.name}>{each.name}</option>
          ))}
        </select>
      </label>
      <div className="chips" role="group" aria-label="States">
        {STATES.map((state) => {
          const isOn = filter.state?.includes(state) ?? false
          return (
            <button
              key={state}
              type="button"
              aria-pressed={isOn}
              className={isOn ? "chip on" : "chip"}
              onClick={() => onChange({ state: isOn ? (filter.state ?? []).filter((each) => each !== state) : [...(filter.state ?? []), state] })}
            >
              {nameOf(state)}
            </button>
          )
        })}
      </div>
    </form>
  )
}

function Table({ rows, selected, onSelect }: { rows: Summary[]; selected: ReadonlySet<string>; onSelect: ((ids: ReadonlySet<string>) => void) | null }) {
  function toggle(id: string): void {
    const after = new Set(selected)
    if (!after.delete(id)) after.add(id)
    onSelect?.(after)
  }
  const areAll = rows.length > 0 && rows.every((row) => selected.has(row.id))
  return (
    <table>
      <caption className="hidden-text">Executions</caption>
      <thead>
        <tr>
          {onSelect && (
            <th className="tick">
              <input type="checkbox" aria-label="Select all shown" checked={areAll} onChange={() => onSelect(areAll ? new Set() : new Set(rows.map((row) => row.id)))} />
            </th>
          )}
          <th>State</th>
          <th>Workflow</th>
          <th>Execution</th>
          <th className="number">Started</th>
          <th className="number">Duration</th>
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <tr key={row.id} className="link">
            {onSelect && (
              <td className="tick">
                <input type="checkbox" aria-label={`Select ${row.workflow} ${row.id}`} checked={selected.has(row.id)} onChange={() => toggle(row.id)} />
              </td>
            )}
            <td>
              <StateBadge state={row.state} />
            </td>
            <td>
              <Link to="/workflows/$name" params={{ name: row.workflow }} className="plain">
                {row.workflow}
              </Link>{" "}
              <span className="muted">v{row.version}</span>
              {row.relation && <span className="muted"> · {row.relation}</span>}
              <Tags tags={row.tags ?? {}} />
            </td>
            <td>
              <Link to="/executions/$id" params={{ id: row.id }} className="mono" title={row.id}>
                {row.idempotency_key || row.id}
              </Link>
            </td>
            <td className="number">
              <Ago at={row.created_at} />
            </td>
            <td className="number">
              <Elapsed since={row.created_at} until={row.ended_at} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  )
}

export function Tags({ tags }: { tags: Record<string, unknown> }) {
  const entries = Object.entries(tags)
  if (entries.length === 0) return null
  return (
    <span className="tags">
      {entries.map(([name, value]) => (
        <span key={name} className="tag">
          {name}: {String(value)}
        </span>
      ))}
    </span>
  )
}

function Empty({ filter }: { filter: Filter }) {
  const isFiltered = Object.keys(clean(filter)).length > 0
  return (
    <div className="empty">
      <strong>{isFiltered ? "No execution matches these filters." : "Nothing has run yet."}</strong>
      {isFiltered ? (
        <Link to="/executions" search={{}}>
          Show all executions
        </Link>
      ) : (
        <Link to="/workflows" className="button primary">
          Start a workflow
        </Link>
      )}
    </div>
  )
}

const BULK = {
  cancel: { title: "Cancel executions", action: "Cancel them", done: "cancelled" },
  retry: { title: "Retry executions", action: "Retry them", done: "retried" },
} as const

/** Nothing happens before the dry run has said what would. The API's bulk call takes filters, so chosen rows go one by one. */
function Bulk({ action, ids, onClose, onDone }: { action: "cancel" | "retry"; ids: string[]; onClose: () => void; onDone: () => void }) {
  const rows = useQuery({
    queryKey: ["executions", "chosen", ids],
    queryFn: () => Promise.all(ids.map((id) => data(api.GET("/v1/executions/{execution}", { params: { path: { execution: id } } })))),
  })
  const wanted: State[] = action === "cancel" ? ["PENDING", "RUNNING", "PAUSED"] : ["FAILED", "CANCELLED"]
  const fitting = (rows.data ?? []).filter((each) => wanted.includes(each.state))
  const [refused, setRefused] = useState<Schemas["Refusal"][]>([])
  const act = useMutation({ mutationFn: (id: string) => one(action, id) })
  async function run(): Promise<void> {
    const refusals: Schemas["Refusal"][] = []
    for (const each of fitting) {
      try {
        await act.mutateAsync(each.id)
      } catch (error) {
        refusals.push({ id: each.id, detail: error instanceof Error ? error.message : String(error) })
      }
    }
    setRefused(refusals)
    if (refusals.length > 0) throw new Error(`${refusals.length} of ${fitting.length} were refused.`)
    onDone()
  }
  return (
    <ActionDialog title={BULK[action].title} action={BULK[action].action} isDanger={action === "cancel"} isReady={fitting.length > 0} onClose={onClose} onAct={run}>
      {rows.isPending && <p className="muted">Looking at {ids.length} executions…</p>}
      {rows.data && (
        <p>
          {fitting.length} of {ids.length} will be {BULK[action].done}
          {fitting.length < ids.length && `; ${ids.length - fitting.length} are in a state in which that is not possible`}.
        </p>
      )}
      {refused.length > 0 && (
        <ul>
          {refused.map((each) => (
            <li key={each.id}>
              <code>{each.id}</code> {each.detail}
            </li>
          ))}
        </ul>
      )}
    </ActionDialog>
  )
}

function one(action: "cancel" | "retry", execution: string): Promise<unknown> {
  const params = { params: { path: { execution } } }
  return action === "cancel" ? api.POST("/v1/executions/{execution}/cancel", params) : api.POST("/v1/executions/{execution}/retry", params)
}
