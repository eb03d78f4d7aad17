/** Decisions of people: approve or reject, with a form made from the approval's schema. */

import { useQuery, useQueryClient } from "@tanstack/react-query"
import { useState } from "react"
import { api, data, type Schemas } from "../api/client"
import { ActionDialog } from "../parts/dialog"
import { SchemaForm, valueOf } from "../parts/schema-form"
import { useMay } from "../session/session"

/** The button at an execution that waits for a decision. */
export function Approve({ execution, node }: { execution: string; node: string }) {
  const mayRun = useMay("run")
  const approvals = useQuery({
    queryKey: ["execution", execution, "approvals"],
    queryFn: () => data(api.GET("/v1/executions/{execution}/approvals", { params: { path: { execution } } })),
    enabled: mayRun,
  })
  const found = approvals.data?.items.find((each) => each.node === node)
  return mayRun && found ? <Decide approval={found} /> : null
}

export function Decide({ approval }: { approval: Schemas["ApprovalInfo"] }) {
  const [isOpen, setOpen] = useState(false)
  return (
    <>
      <button type="button" className="button primary small" onClick={() => setOpen(true)}>
        Decide…
      </button>
      {isOpen && <Decision approval={approval} onClose={() => setOpen(false)} />}
    </>
  )
}

function Decision({ approval, onClose }: { approval: Schemas["ApprovalInfo"]; onClose: () => void }) {
  const queries = useQueryClient()
  const [decision, setDecision] = useState<"approved" | "rejected">("approved")
  const [texts, setTexts] = useState<Record<string, string>>({})
  const [comment, setComment] = useState("")
  const hasForm = approval.form !== null && approval.form !== undefined
  async function decide(): Promise<void> {
    await data(
      api.POST("/v1/executions/{execution}/approvals/{node}", {
        params: { path: { execution: approval.execution, node: approval.node } },
        body: {
          decision,
          ...(hasForm && decision === "approved" ? { data: valueOf(approval.form, texts) } : {}),
          ...(approval.indexes?.length ? { index: approval.indexes } : {}),
          ...(comment ? { comment } : {}),
        },
      }),
    )
    await Promise.all([
      queries.invalidateQueries({ queryKey: ["approvals"] }),
      queries.invalidateQueries({ queryKey: ["execution", approval.execution] }),
    ])
  }
  return (
    <ActionDialog title={approval.message || `Decide ${approval.node}`} action={decision === "approved" ? "Approve" : "Reject"} isDanger={decision === "rejected"} onClose={onClose} onAct={decide}>
      <div className="chips" role="group" aria-label="Decision">
        {(["approved", "rejected"] as const).map((each) => (
          <button key={each} type="button" aria-pressed={each === decision} className={each === decision ? "chip on" : "chip"} onClick={() => setDecision(each)}>
            {each === "approved" ? "Approve" : "Reject"}
          </button>
        ))}
      </div>
      {hasForm && decision === "approved" && <SchemaForm schema={approval.form} texts={texts} onChange={setTexts} />}
      <label className="field">
        <span>Comment</span>
        <input type="text" value={comment} onChange={(event) => setComment(event.target.value)} placeholder="Optional" />
      </label>
    </ActionDialog>
  )
}
