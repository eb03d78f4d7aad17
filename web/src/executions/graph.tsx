/** The graph of an execution, live: states by colour and shape, counts of splits, countdowns of waits, paths that are dead. */

import { Background, Controls, Handle, Position, ReactFlow, type Edge, type Node, type NodeProps } from "@xyflow/react"
import "@xyflow/react/dist/style.css"
import { useMemo } from "react"
import type { NodeStatus, Reason } from "../api/client"
import { Mark, toneOf } from "../parts/state"
import { Countdown } from "../parts/time"
import { useLayout, type GraphDocument, type Placed } from "./layout"

interface CardData extends Record<string, unknown> {
  id: string
  type: string
  status: NodeStatus | undefined
  reason: Reason | undefined
  isOver: boolean
}

type Card = Node<CardData, "card">

interface Props {
  document: GraphDocument
  nodes: Record<string, NodeStatus>
  reasons: Reason[]
  isOver: boolean
  selected: string | null
  onSelect: (node: string | null) => void
}

const TYPES = { card: NodeCard }

export function Graph({ document, nodes, reasons, isOver, selected, onSelect }: Props) {
  const layout = useLayout(document)
  const cards = useMemo(() => (layout ? cardsOf(document, layout, nodes, reasons, isOver, selected) : []), [layout, document, nodes, reasons, isOver, selected])
  const edges = useMemo(() => edgesOf(document, nodes, isOver), [document, nodes, isOver])
  if (!layout) return <div className="graph card" aria-busy="true" />
  return (
    <div className="graph card">
      <ReactFlow
        nodes={cards}
        edges={edges}
        nodeTypes={TYPES}
        fitView
        fitViewOptions={{ maxZoom: 1.1, padding: 0.15 }}
        minZoom={0.05}
        nodesDraggable={false}
        nodesConnectable={false}
        onlyRenderVisibleElements={cards.length > 200}
        onNodeClick={(_, node) => onSelect(node.id)}
        onPaneClick={() => onSelect(null)}
        onSelectionChange={({ nodes: chosen }) => chosen[0] && chosen[0].id !== selected && onSelect(chosen[0].id)}
        proOptions={{ hideAttribution: true }}
        aria-label="Graph of the workflow"
      >
        <Background gap={20} color="var(--line)" />
        <Controls showInteractive={false} />
      </ReactFlow>
    </div>
  )
}

function cardsOf(document: GraphDocument, layout: Placed, nodes: Record<string, NodeStatus>, reasons: Reason[], isOver: boolean, selected: string | null): Card[] {
  const waits = new Map(reasons.filter((each) => each.node).map((each) => [each.node, each]))
  return document.nodes.map((node) => ({
    id: node.id,
    type: "card" as const,
    position: layout[node.id] ?? { x: 0, y: 0 },
    selected: node.id === selected,
    data: { id: node.id, type: node.type, status: nodes[node.id], reason: waits.get(node.id), isOver },
    ariaLabel: `${node.id}, ${node.type}, ${(nodes[node.id]?.state ?? "PENDING").toLowerCase()}`,
  }))
}

function edgesOf(document: GraphDocument, nodes: Record<string, NodeStatus>, isOver: boolean): Edge[] {
  return (document.edges ?? []).map((edge, index) => {
    const from = nodes[edge.src]?.state
    const to = nodes[edge.dst]?.state ?? "PENDING"
    const isTaken = from === "COMPLETED" && to !== "PENDING" && to !== "SKIPPED"
    const isDead = to === "SKIPPED" || from === "SKIPPED" || (isOver && to === "PENDING")
    return {
      id: edge.id ?? `edge ${index}`,
      source: edge.src,
      target: edge.dst,
      type: "smoothstep",
      animated: to === "RUNNING",
      className: isTaken ? "taken" : isDead ? "faded" : "",
      ...(edge.label ? { label: edge.label } : {}),
    }
  })
}

function NodeCard({ data }: NodeProps<Card>) {
  const state = data.status?.state ?? "PENDING"
  const tone = toneOf(state)
  const { runs = 0, failed = 0, waiting = 0, due = null } = data.status ?? {}
  const many = runs > 1
  const isDead = state === "SKIPPED" || (data.isOver && state === "PENDING")
  const { arrived, expected } = data.reason ?? {}
  return (
    <div className={`graph-node ${tone}${many ? " many" : ""}${isDead ? " dead" : ""}`}>
      <Handle type="target" position={Position.Left} />
      <div className="title">
        <span className={`mark-${tone}`}>
          <Mark state={state} />
        </span>
        <span className="cut" title={data.id}>
          {data.id}
        </span>
      </div>
      <div className="detail">
        <span className="cut">{data.type}</span>
        {state === "WAITING" && due ? (
          <Countdown due={due} />
        ) : arrived != null && expected != null ? (
          <span>
            {arrived} of {expected} arrived
          </span>
        ) : many ? (
          <span>
            {runs} runs{failed > 0 && `, ${failed} failed`}
          </span>
        ) : (
          failed > 0 && <span>attempt {failed + 1}</span>
        )}
      </div>
      {arrived != null && expected != null && expected > 0 && waiting > 0 && (
        <div className="bar" role="progressbar" aria-label={`${data.id}: arrived`} aria-valuenow={arrived} aria-valuemax={expected}>
          <i style={{ width: `${(100 * arrived) / expected}%` }} />
        </div>
      )}
      <Handle type="source" position={Position.Right} />
    </div>
  )
}
