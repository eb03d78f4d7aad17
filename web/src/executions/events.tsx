/** The events of an execution, with a search; only the rows in sight are drawn. */

import { useVirtualizer } from "@tanstack/react-virtual"
import { useMemo, useRef, useState } from "react"
import type { HistoryEvent } from "../api/client"
import { Json } from "../parts/json"
import { clock, seconds } from "../parts/time"
import { sentenceOf } from "./history"

export function Events({ events }: { events: HistoryEvent[] }) {
  const [text, setText] = useState("")
  const [open, setOpen] = useState<HistoryEvent | null>(null)
  const frame = useRef<HTMLDivElement>(null)
  const found = useMemo(() => matching(events, text), [events, text])
  const rows = useVirtualizer({ count: found.length, getScrollElement: () => frame.current, estimateSize: () => 30, overscan: 12 })
  return (
    <div className="panes">
      <div className="card">
        <header>
          <input type="search" aria-label="Search events" placeholder="Search events…" value={text} onChange={(event) => setText(event.target.value)} />
          <span className="muted number">
            {found.length === events.length ? events.length : `${found.length} of ${events.length}`}
          </span>
        </header>
        <div className="event-list" ref={frame} tabIndex={0} aria-label="Events">
          <div style={{ height: rows.getTotalSize(), position: "relative" }}>
            {rows.getVirtualItems().map((row) => {
              const event = found[row.index] as HistoryEvent
              return (
                <button
                  key={event.seq}
                  type="button"
                  className="event-row"
                  data-index={row.index}
                  ref={rows.measureElement}
                  style={{ position: "absolute", insetBlockStart: 0, insetInline: 0, transform: `translateY(${row.start}px)` }}
                  onClick={() => setOpen(event)}
                >
                  <span className="number">{event.seq}</span>
                  <span className="muted">{clock(seconds(event.at))}</span>
                  <span>{event.kind}</span>
                  <span className="cut">
                    <strong>{event.node}</strong> {sentenceOf(event)}
                  </span>
                </button>
              )
            })}
          </div>
        </div>
      </div>
      <aside className="card">
        <header>
          <h2>{open ? `Event ${open.seq}` : "Event"}</h2>
        </header>
        <div className="body">{open ? <Json value={open} /> : <p className="muted">Choose an event to see its data.</p>}</div>
      </aside>
    </div>
  )
}

function matching(events: HistoryEvent[], text: string): HistoryEvent[] {
  const wanted = text.trim().toLowerCase()
  if (wanted === "") return events
  return events.filter((event) => `${event.kind} ${event.node ?? ""} ${sentenceOf(event)}`.toLowerCase().includes(wanted))
}
