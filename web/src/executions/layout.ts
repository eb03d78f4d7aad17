/** Positions of nodes, computed by ELK in a web worker. */

import ELK, { type ElkNode } from "elkjs/lib/elk-api.js"
import ElkWorker from "elkjs/lib/elk-worker.min.js?worker"
import { useEffect, useState } from "react"

export interface GraphDocument {
  nodes: { id: string; type: string; parameters?: Record<string, unknown> }[]
  edges?: { id?: string; src: string; dst: string; label?: string }[]
}

export type Placed = Record<string, { x: number; y: number }>

const WIDTH = 200
const HEIGHT = 58
const ASPECT = 1.9
const WIDEST = 4

let shared: InstanceType<typeof ELK> | undefined

function elk(): InstanceType<typeof ELK> {
  shared ??= new ELK({ workerFactory: () => new ElkWorker() })
  return shared
}

/** Return the positions, or null while they are computed. */
export function useLayout(document: GraphDocument): Placed | null {
  const [placed, setPlaced] = useState<Placed | null>(null)
  useEffect(() => {
    let isCurrent = true
    void place(document).then((found) => isCurrent && setPlaced(found))
    return () => {
      isCurrent = false
    }
  }, [document])
  return placed
}

async function place(document: GraphDocument): Promise<Placed> {
  const names = new Set(document.nodes.map((node) => node.id))
  const graph: ElkNode = {
    id: "graph",
    layoutOptions: {
      "elk.algorithm": "layered",
      "elk.direction": "RIGHT",
      "elk.layered.spacing.nodeNodeBetweenLayers": "64",
      "elk.spacing.nodeNode": "28",
      "elk.layered.considerModelOrder.strategy": "NODES_AND_EDGES",
      // A long chain goes on in the next row, so that its nodes can be read without zooming.
      "elk.aspectRatio": String(ASPECT),
      ...(document.nodes.length > WIDEST ? { "elk.layered.wrapping.strategy": "MULTI_EDGE", "elk.layered.wrapping.additionalEdgeSpacing": "24" } : {}),
    },
    children: document.nodes.map((node) => ({ id: node.id, width: WIDTH, height: HEIGHT })),
    edges: (document.edges ?? [])
      .filter((edge) => names.has(edge.src) && names.has(edge.dst))
      .map((edge, index) => ({ id: `edge ${index}`, sources: [edge.src], targets: [edge.dst] })),
  }
  const laid = await elk().layout(graph)
  return Object.fromEntries((laid.children ?? []).map((node) => [node.id, { x: node.x ?? 0, y: node.y ?? 0 }]))
}
