/** Server-sent events that go on after a break: without a lost or repeated event, also when the server restarts. */

export interface StreamEvent {
  id: number | null
  kind: string
  data: unknown
}

export type Connection = "connecting" | "open" | "interrupted" | "ended"

interface Listener {
  onEvent(event: StreamEvent): void
  onConnection?(connection: Connection): void
}

export interface Options extends Listener {
  url: string
  kinds: readonly string[]
  /** The number of the last event that the caller has; null for streams without numbers. */
  after: number | null
  /** Replaced in tests. */
  open?: (url: string) => EventSource
}

const FIRST_PAUSE = 500
const LONGEST_PAUSE = 15_000

/** Open a stream. Returns the function that closes it. */
export function follow(options: Options): () => void {
  const open = options.open ?? ((url: string) => new EventSource(url))
  let last = options.after
  let pause = FIRST_PAUSE
  let source: EventSource | null = null
  let timer: ReturnType<typeof setTimeout> | undefined
  let isClosed = false

  function close(): void {
    isClosed = true
    clearTimeout(timer)
    source?.close()
  }

  function take(event: MessageEvent<string>): void {
    if (event.type === "end") {
      close()
      options.onEvent({ id: null, kind: "end", data: JSON.parse(event.data) })
      options.onConnection?.("ended")
      return
    }
    const id = event.lastEventId === "" ? null : Number(event.lastEventId)
    if (id !== null && last !== null && id <= last) return
    if (id !== null && options.after !== null) last = id
    options.onEvent({ id, kind: event.type, data: JSON.parse(event.data) })
  }

  // A browser reconnects by itself after a break, but gives up after a refusal such as 503; and its own count of
  // events is lost when the page makes a new source. So each connection is a new source that names the last event.
  function connect(): void {
    options.onConnection?.(source === null ? "connecting" : "interrupted")
    const url = new URL(options.url, location.origin)
    if (last !== null) url.searchParams.set("after", String(last))
    source = open(url.toString())
    source.onopen = () => {
      pause = FIRST_PAUSE
      options.onConnection?.("open")
    }
    source.onerror = () => {
      source?.close()
      if (isClosed) return
      options.onConnection?.("interrupted")
      timer = setTimeout(connect, pause)
      pause = Math.min(pause * 2, LONGEST_PAUSE)
    }
    for (const kind of [...options.kinds, "end"]) source.addEventListener(kind, take as EventListener)
  }

  connect()
  return close
}

export const STATE_CHANGES = [
  "ExecutionStarted",
  "ExecutionPaused",
  "ExecutionResumed",
  "ExecutionCompleted",
  "ExecutionFailed",
  "ExecutionCancelled",
  "lost",
] as const
