/** The live state of one execution: its history as it grows, and queries that follow it. */

import { useQuery, useQueryClient } from "@tanstack/react-query"
import { useEffect, useState } from "react"
import { api, data, type HistoryEvent } from "../api/client"
import { follow, type Connection } from "../api/streams"

const KINDS = [
  "ExecutionSubmitted", "ExecutionStarted", "ExecutionPaused", "ExecutionResumed", "ExecutionCompleted", "ExecutionFailed",
  "ExecutionCancelled", "NodeStarted", "NodeCompleted", "NodeFailed", "NodeRetrying", "NodeWaiting", "NodeRequeued", "NodeSkipped",
  "NodeCancelled", "ArrivalDropped", "Suspended", "TaskStarted", "TaskCompleted", "TaskFailed", "TaskRetrying", "TaskRequeued",
  "TaskCancelled", "TaskHandedOver", "TimerFired", "SignalReceived", "ChildStarted", "ChildEnded", "TagsChanged",
  "RequestReceived", "RequestAnswered", "VersionChanged", "CancelRequested", "LogWritten",
] as const

/** Queries are renewed at most this often while events arrive. */
const RENEW_EVERY = 400
const ENDED = new Set(["COMPLETED", "FAILED", "CANCELLED"])

export function isEnded(state: string): boolean {
  return ENDED.has(state)
}

export interface Live {
  events: HistoryEvent[]
  connection: Connection
}

/** Follow the events of an execution. Each is here once, in order, also after the server restarted. */
export function useHistory(execution: string): Live {
  const queries = useQueryClient()
  const [live, setLive] = useState<Live>({ events: [], connection: "connecting" })
  useEffect(() => {
    let pending: HistoryEvent[] = []
    let renewal: ReturnType<typeof setTimeout> | undefined
    let frame = 0
    function show(): void {
      frame = 0
      const arrived = pending
      pending = []
      setLive((before) => ({ ...before, events: [...before.events, ...arrived] }))
    }
    function renew(): void {
      renewal ??= setTimeout(() => {
        renewal = undefined
        void queries.invalidateQueries({ queryKey: ["execution", execution] })
      }, RENEW_EVERY)
    }
    setLive({ events: [], connection: "connecting" })
    const close = follow({
      url: `/v1/executions/${encodeURIComponent(execution)}/stream`,
      kinds: KINDS,
      after: 0,
      onEvent(event) {
        if (event.kind !== "end") {
          pending.push(event.data as HistoryEvent)
          frame ||= requestAnimationFrame(show)
        }
        renew()
      },
      onConnection: (connection) => setLive((before) => ({ ...before, connection })),
    })
    return () => {
      close()
      clearTimeout(renewal)
      cancelAnimationFrame(frame)
    }
  }, [execution, queries])
  return live
}

function path(execution: string) {
  return { params: { path: { execution } } }
}

export function useExecution(execution: string) {
  return useQuery({
    queryKey: ["execution", execution, "itself"],
    queryFn: () => data(api.GET("/v1/executions/{execution}", path(execution))),
  })
}

export function useNodes(execution: string, isGraph: boolean) {
  return useQuery({
    queryKey: ["execution", execution, "nodes"],
    queryFn: () => data(api.GET("/v1/executions/{execution}/nodes", path(execution))),
    enabled: isGraph,
  })
}

export function useWhy(execution: string, isOver: boolean) {
  return useQuery({
    queryKey: ["execution", execution, "why"],
    queryFn: () => data(api.GET("/v1/executions/{execution}/why", path(execution))),
    refetchInterval: isOver ? false : 5000,
  })
}

export function usePicture(execution: string, isScripted: boolean) {
  return useQuery({
    queryKey: ["execution", execution, "picture"],
    queryFn: () => data(api.GET("/v1/executions/{execution}/picture", path(execution))),
    enabled: isScripted,
  })
}

export function useResults(execution: string, isOpen: boolean) {
  return useQuery({
    queryKey: ["execution", execution, "results"],
    queryFn: () => data(api.GET("/v1/executions/{execution}/results", path(execution))),
    enabled: isOpen,
  })
}
