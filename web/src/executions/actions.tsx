/** What can be done with an execution now, by its state and by what the caller may do. */

import * as Menu from "@radix-ui/react-dropdown-menu"
import { useMutation, useQueryClient } from "@tanstack/react-query"
import { useNavigate } from "@tanstack/react-router"
import { useState } from "react"
import { api, data, type Execution } from "../api/client"
import { ActionDialog } from "../parts/dialog"
import { Refusal } from "../parts/refusal"
import { useMay } from "../session/session"
import { isEnded } from "./live"

type Asked = "cancel" | "signal" | "retry" | null

export function Actions({ execution }: { execution: Execution }) {
  const mayRun = useMay("run")
  const queries = useQueryClient()
  const [asked, setAsked] = useState<Asked>(null)
  const params = { params: { path: { execution: execution.id } } }
  const act = useMutation({
    mutationFn: (action: "pause" | "resume") =>
      action === "pause" ? api.POST("/v1/executions/{execution}/pause", params) : api.POST("/v1/executions/{execution}/resume", params),
    onSettled: () => queries.invalidateQueries({ queryKey: ["execution", execution.id] }),
  })
  const isOver = isEnded(execution.state)
  return (
    <>
      <div className="row" role="toolbar" aria-label="Actions">
        {mayRun && !isOver && execution.state === "PAUSED" && (
          <button type="button" className="button" onClick={() => act.mutate("resume")} disabled={act.isPending}>
            Resume
          </button>
        )}
        {mayRun && execution.state === "RUNNING" && (
          <button type="button" className="button" onClick={() => act.mutate("pause")} disabled={act.isPending}>
            Pause
          </button>
        )}
        {mayRun && !isOver && (
          <>
            <button type="button" className="button" onClick={() => setAsked("signal")}>
              Signal…
            </button>
            <button type="button" className="button danger" onClick={() => setAsked("cancel")}>
              Cancel…
            </button>
          </>
        )}
        {mayRun && isOver && (
          <button type="button" className={execution.state === "FAILED" ? "button primary" : "button"} onClick={() => setAsked("retry")}>
            Retry…
          </button>
        )}
        <Copy execution={execution} />
      </div>
      {act.isError && <Refusal error={act.error} />}
      {asked === "cancel" && <Cancel execution={execution} onClose={() => setAsked(null)} />}
      {asked === "signal" && <Signal execution={execution} onClose={() => setAsked(null)} />}
      {asked === "retry" && <Retry execution={execution} onClose={() => setAsked(null)} />}
    </>
  )
}

function Cancel({ execution, onClose }: { execution: Execution; onClose: () => void }) {
  const [reason, setReason] = useState("")
  return (
    <ActionDialog
      title={`Cancel ${execution.workflow}?`}
      action="Cancel it"
      isDanger
      onClose={onClose}
      onAct={() =>
        data(api.POST("/v1/executions/{execution}/cancel", { params: { path: { execution: execution.id } }, body: reason ? { reason } : {} }))
      }
    >
      <p>Work that runs is stopped; clean-ups of the workflow run. A cancelled execution can be retried.</p>
      <label className="field">
        <span>Reason</span>
        <input type="text" value={reason} onChange={(event) => setReason(event.target.value)} placeholder="Optional; shown in the history" />
      </label>
    </ActionDialog>
  )
}

function Signal({ execution, onClose }: { execution: Execution; onClose: () => void }) {
  const [name, setName] = useState("")
  const [payload, setPayload] = useState("")
  async function send(): Promise<void> {
    await data(
      api.POST("/v1/executions/{execution}/signals", {
        params: { path: { execution: execution.id } },
        body: { name, payload: payload.trim() === "" ? null : parse(payload, "payload") },
      }),
    )
  }
  return (
    <ActionDialog title="Send a signal" action="Send" isReady={name !== ""} onClose={onClose} onAct={send}>
      <label className="field">
        <span>Name</span>
        <input type="text" value={name} onChange={(event) => setName(event.target.value)} autoFocus />
      </label>
      <label className="field">
        <span>Payload</span>
        <textarea rows={5} value={payload} onChange={(event) => setPayload(event.target.value)} placeholder="JSON; empty for none" spellCheck={false} />
      </label>
    </ActionDialog>
  )
}

function Retry({ execution, onClose }: { execution: Execution; onClose: () => void }) {
  const navigate = useNavigate()
  const isScripted = execution.kind === "script" || execution.kind === "python"
  const [latest, setLatest] = useState(false)
  const [fromStart, setFromStart] = useState(execution.state === "COMPLETED")
  async function retry(): Promise<void> {
    const started = await data(
      api.POST("/v1/executions/{execution}/retry", {
        params: { path: { execution: execution.id } },
        body: { ...(isScripted && fromStart ? { from_start: true } : {}), ...(latest ? { version: "latest" } : {}) },
      }),
    )
    await navigate({ to: "/executions/$id", params: { id: started.id } })
  }
  return (
    <ActionDialog title={`Retry ${execution.workflow}`} action="Retry" onClose={onClose} onAct={retry}>
      <p>A new execution goes on from the failure. What completed keeps its result; this execution stays as it is.</p>
      <label className="row">
        <input type="checkbox" checked={latest} onChange={(event) => setLatest(event.target.checked)} /> with the newest version of the workflow
      </label>
      {isScripted && (
        <label className="row">
          <input type="checkbox" checked={fromStart} onChange={(event) => setFromStart(event.target.checked)} /> from the beginning: everything runs again
        </label>
      )}
    </ActionDialog>
  )
}

/** Parse JSON that a person typed; the message names the field. */
export function parse(text: string, field: string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    throw new Error(`The ${field} is not JSON: ${error instanceof Error ? error.message : String(error)}`)
  }
}

function Copy({ execution }: { execution: Execution }) {
  const input = JSON.stringify(execution.input ?? null)
  const texts: [string, string][] = [
    ["Copy id", execution.id],
    [
      "Copy as curl",
      `curl ${location.origin}/v1/executions -H 'Content-Type: application/json' \\\n  -d '${JSON.stringify({ workflow: execution.workflow, input: execution.input ?? null }).replaceAll("'", "'\\''")}'`,
    ],
    ["Copy as Python", `from dalsegno import Client\n\nwith Client(${JSON.stringify(location.origin)}) as client:\n    handle = client.start(${JSON.stringify(execution.workflow)}, ${python(input)})\n    print(handle.result())`],
    ["Copy as command", `dalsegno start ${execution.workflow} --server ${location.origin} --input '${input.replaceAll("'", "'\\''")}'`],
  ]
  return (
    <Menu.Root>
      <Menu.Trigger asChild>
        <button type="button" className="button" aria-label="More actions">
          ⋯
        </button>
      </Menu.Trigger>
      <Menu.Portal>
        <Menu.Content className="menu" align="end" sideOffset={4}>
          {texts.map(([name, text]) => (
            <Menu.Item key={name} onSelect={() => void navigator.clipboard.writeText(text)}>
              {name}
            </Menu.Item>
          ))}
        </Menu.Content>
      </Menu.Portal>
    </Menu.Root>
  )
}

function python(json: string): string {
  return json.replaceAll(/\btrue\b/g, "True").replaceAll(/\bfalse\b/g, "False").replaceAll(/\bnull\b/g, "None")
}
