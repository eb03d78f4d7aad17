/** The definition that an execution runs: its graph, or its source with the number of its first line. */

import { useQuery } from "@tanstack/react-query"
import { api, data, Refused, type Execution } from "../api/client"
import type { GraphDocument } from "./layout"

export interface Definition {
  document: GraphDocument | null
  source: string
  firstLine: number
}

export function useDefinition(execution: Execution | undefined) {
  return useQuery({
    queryKey: ["program", execution?.definition ?? execution?.id],
    queryFn: () => load(execution as Execution),
    enabled: execution !== undefined && ["graph", "script", "python"].includes(execution.kind),
    staleTime: Infinity,
  })
}

async function load(execution: Execution): Promise<Definition> {
  try {
    const found = await data(
      api.GET("/v1/definitions/{name}", { params: { path: { name: execution.workflow }, query: { version: String(execution.version) } } }),
    )
    if (!execution.definition || found.hash === execution.definition) {
      return { document: found.document as GraphDocument | null, source: found.source, firstLine: found.first_line ?? 1 }
    }
  } catch (error) {
    if (!(error instanceof Refused && error.status === 404)) throw error
  }
  return undeployed(execution)
}

/** A definition that came with its execution, or was removed since: it is stored under its hash alone. */
async function undeployed(execution: Execution): Promise<Definition> {
  const program = await data(api.GET("/v1/programs/{hash}", { params: { path: { hash: execution.definition ?? "" } } }))
  if (program.kind !== "graph") return { document: null, source: "", firstLine: 1 }
  const bytes = Uint8Array.from(atob(program.stored), (character) => character.charCodeAt(0))
  const source = new TextDecoder().decode(bytes)
  return { document: JSON.parse(source) as GraphDocument, source, firstLine: 1 }
}
