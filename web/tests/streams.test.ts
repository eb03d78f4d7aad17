import { afterEach, beforeEach, describe, expect, test, vi } from "vitest"
import { follow, type Connection, type StreamEvent } from "../src/api/streams"

class Source {
  static opened: Source[] = []
  onopen: (() => void) | null = null
  onerror: (() => void) | null = null
  isClosed = false
  readonly listeners = new Map<string, (event: MessageEvent) => void>()
  constructor(readonly url: string) {
    Source.opened.push(this)
  }
  addEventListener(kind: string, listener: (event: MessageEvent) => void): void {
    this.listeners.set(kind, listener)
  }
  close(): void {
    this.isClosed = true
  }
  send(kind: string, id: number | null, data: unknown): void {
    this.listeners.get(kind)?.(new MessageEvent(kind, { data: JSON.stringify(data), lastEventId: id === null ? "" : String(id) }))
  }
}

function begin(after: number | null) {
  const events: StreamEvent[] = []
  const connections: Connection[] = []
  const close = follow({
    url: "/v1/executions/x/stream",
    kinds: ["NodeStarted", "NodeCompleted"],
    after,
    onEvent: (event) => events.push(event),
    onConnection: (connection) => connections.push(connection),
    open: (url) => new Source(url) as unknown as EventSource,
  })
  return { events, connections, close, seen: () => events.map((event) => event.id) }
}

const latest = () => Source.opened.at(-1) as Source

beforeEach(() => {
  Source.opened = []
  vi.stubGlobal("location", { origin: "http://127.0.0.1:8700" })
  vi.useFakeTimers()
})
afterEach(() => {
  vi.useRealTimers()
  vi.unstubAllGlobals()
})

describe("a stream of numbered events", () => {
  test("goes on after the last event, without a lost or repeated one", () => {
    const { seen, connections } = begin(0)
    latest().onopen?.()
    latest().send("NodeStarted", 1, {})
    latest().send("NodeCompleted", 2, {})
    latest().onerror?.()
    vi.advanceTimersByTime(500)
    expect(Source.opened).toHaveLength(2)
    expect(new URL(latest().url).searchParams.get("after")).toBe("2")
    latest().onopen?.()
    latest().send("NodeCompleted", 2, {})
    latest().send("NodeStarted", 3, {})
    expect(seen()).toEqual([1, 2, 3])
    expect(connections).toEqual(["connecting", "open", "interrupted", "interrupted", "open"])
  })

  test("waits longer after each refusal, and never opens two connections at once", () => {
    begin(0)
    for (const pause of [500, 1000, 2000]) {
      latest().onerror?.()
      vi.advanceTimersByTime(pause - 1)
      const before = Source.opened.length
      vi.advanceTimersByTime(1)
      expect(Source.opened).toHaveLength(before + 1)
    }
    expect(Source.opened.filter((source) => !source.isClosed)).toHaveLength(1)
  })

  test("ends with the execution: nothing is opened again", () => {
    const { events, connections } = begin(0)
    latest().send("end", null, { state: "COMPLETED" })
    latest().onerror?.()
    vi.advanceTimersByTime(60_000)
    expect(Source.opened).toHaveLength(1)
    expect(events.at(-1)).toEqual({ id: null, kind: "end", data: { state: "COMPLETED" } })
    expect(connections.at(-1)).toBe("ended")
  })

  test("closed by the page, it stays closed", () => {
    const { close } = begin(0)
    latest().onerror?.()
    close()
    vi.advanceTimersByTime(60_000)
    expect(Source.opened).toHaveLength(1)
  })
})

test("a stream without numbers asks for nothing and takes everything", () => {
  const { events } = begin(null)
  expect(new URL(latest().url).search).toBe("")
  latest().send("NodeStarted", null, { execution: "a" })
  latest().send("NodeStarted", null, { execution: "a" })
  expect(events).toHaveLength(2)
})
