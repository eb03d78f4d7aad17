/** The command palette (Ctrl-K): finds pages, workflows and executions. */

import * as Radix from "@radix-ui/react-dialog"
import { useQuery } from "@tanstack/react-query"
import { useNavigate } from "@tanstack/react-router"
import { useEffect, useId, useState } from "react"
import { api, data } from "../api/client"

interface Found {
  key: string
  name: string
  detail: string
  to: string
}

const PAGES: readonly [string, string][] = [
  ["Overview", "/"],
  ["Executions", "/executions"],
  ["Workflows", "/workflows"],
  ["Approvals", "/approvals"],
  ["Schedules", "/schedules"],
  ["Workers & queues", "/workers"],
  ["Dead letters", "/dead"],
]

export function CommandPalette() {
  const [isOpen, setOpen] = useState(false)
  useEffect(() => {
    function onKey(event: KeyboardEvent): void {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault()
        setOpen((before) => !before)
      }
    }
    addEventListener("keydown", onKey)
    return () => removeEventListener("keydown", onKey)
  }, [])
  return (
    <Radix.Root open={isOpen} onOpenChange={setOpen}>
      <Radix.Trigger asChild>
        <button type="button" className="button small palette-button">
          Find… <kbd>Ctrl K</kbd>
        </button>
      </Radix.Trigger>
      <Radix.Portal>
        <Radix.Overlay className="overlay" />
        <Radix.Content className="dialog palette" aria-describedby={undefined}>
          <Radix.Title className="hidden-text">Find a page, a workflow or an execution</Radix.Title>
          <Palette onClose={() => setOpen(false)} />
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  )
}

function Palette({ onClose }: { onClose: () => void }) {
  const navigate = useNavigate()
  const [text, setText] = useState("")
  const [chosen, setChosen] = useState(0)
  const list = useId()
  const found = useFound(text)
  const current = Math.min(chosen, Math.max(found.length - 1, 0))

  function go(to: string): void {
    onClose()
    void navigate({ to })
  }

  return (
    <>
      <input
        type="search"
        role="combobox"
        aria-expanded="true"
        aria-controls={list}
        aria-activedescendant={found[current] ? `${list}-${current}` : undefined}
        aria-label="Find"
        placeholder="A page, a workflow, an execution's id…"
        value={text}
        autoFocus
        onChange={(event) => {
          setText(event.target.value)
          setChosen(0)
        }}
        onKeyDown={(event) => {
          if (event.key === "ArrowDown") setChosen(Math.min(current + 1, found.length - 1))
          else if (event.key === "ArrowUp") setChosen(Math.max(current - 1, 0))
          else if (event.key === "Enter" && found[current]) go(found[current].to)
          else return
          event.preventDefault()
        }}
      />
      <ul role="listbox" id={list} aria-label="Found">
        {found.map((each, index) => (
          <li key={each.key} id={`${list}-${index}`} role="option" aria-selected={index === current} onClick={() => go(each.to)} onMouseMove={() => setChosen(index)}>
            <span className="cut">{each.name}</span>
            <span className="muted cut">{each.detail}</span>
          </li>
        ))}
        {found.length === 0 && <li className="muted">Nothing found.</li>}
      </ul>
    </>
  )
}

function useFound(text: string): Found[] {
  const wanted = text.trim()
  const workflows = useQuery({
    queryKey: ["definitions", "all"],
    queryFn: () => data(api.GET("/v1/definitions", { params: { query: { limit: 500 } } })),
    staleTime: 30_000,
  })
  const executions = useQuery({
    queryKey: ["executions", "found", wanted],
    queryFn: () => data(api.GET("/v1/executions", { params: { query: { text: wanted, limit: 8 } } })),
    enabled: wanted.length >= 3,
  })
  const lower = wanted.toLowerCase()
  const pages = PAGES.filter(([name]) => name.toLowerCase().includes(lower)).map(([name, to]) => ({ key: to, name, detail: "Page", to }))
  const named = (workflows.data?.items ?? [])
    .filter((each) => lower !== "" && each.name.toLowerCase().includes(lower))
    .slice(0, 8)
    .map((each) => ({ key: `w ${each.name}`, name: each.name, detail: "Workflow", to: `/workflows/${encodeURIComponent(each.name)}` }))
  const started = (executions.data?.items ?? []).map((each) => ({
    key: each.id,
    name: `${each.workflow} ${each.id.slice(-8)}`,
    detail: each.state.toLowerCase(),
    to: `/executions/${each.id}`,
  }))
  return [...pages, ...named, ...started]
}
