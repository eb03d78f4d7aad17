/** Work that is stuck: why, and what can be done with it. */

import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query"
import { Link } from "@tanstack/react-router"
import { useState } from "react"
import { api, data, type Schemas } from "../api/client"
import { ActionDialog } from "../parts/dialog"
import { Page } from "../parts/page"
import { Refusal } from "../parts/refusal"
import { Ago } from "../parts/time"
import { useMay } from "../session/session"

export function DeadLetters() {
  const mayRun = useMay("run")
  const queries = useQueryClient()
  const [dropped, setDropped] = useState<Schemas["DeadLetterInfo"] | null>(null)
  const letters = useQuery({
    queryKey: ["dead", "list"],
    queryFn: () => data(api.GET("/v1/dead", { params: { query: { limit: 200 } } })),
    refetchInterval: 10_000,
  })
  const requeue = useMutation({
    mutationFn: (letter: string) => api.POST("/v1/dead/{letter}/retry", { params: { path: { letter } } }),
    onSettled: () => queries.invalidateQueries({ queryKey: ["dead"] }),
  })
  return (
    <>
      {requeue.isError && <Refusal error={requeue.error} />}
      <Page title="Dead letters" query={letters} empty="No work is stuck.">
        {(page) => (
          <table>
            <thead>
              <tr>
                <th>Reason</th>
                <th>Workflow</th>
                <th className="number">Since</th>
                <th className="number">Tries</th>
                <th />
              </tr>
            </thead>
            <tbody>
              {page.items.map((each) => (
                <tr key={each.id}>
                  <td>
                    {each.reason}
                    <div className="muted">
                      {each.kind}
                      {each.code && ` · ${each.code}`}
                    </div>
                  </td>
                  <td>
                    <Link to="/executions/$id" params={{ id: each.execution }}>
                      {each.workflow}
                    </Link>
                  </td>
                  <td className="number">
                    <Ago at={each.since} />
                  </td>
                  <td className="number">{each.tries}</td>
                  <td>
                    {mayRun && (
                      <div className="row">
                        <button type="button" className="button small" disabled={requeue.isPending} onClick={() => requeue.mutate(each.id)}>
                          Retry
                        </button>
                        <button type="button" className="button small danger" onClick={() => setDropped(each)}>
                          Drop…
                        </button>
                      </div>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </Page>
      {dropped && (
        <ActionDialog
          title="Drop this work?"
          action="Drop it"
          isDanger
          onClose={() => setDropped(null)}
          onAct={async () => {
            await api.POST("/v1/dead/{letter}/drop", { params: { path: { letter: dropped.id } } })
            await queries.invalidateQueries({ queryKey: ["dead"] })
          }}
        >
          <p>{dropped.reason}</p>
          <p>It will not run. The execution goes on as if it had failed.</p>
        </ActionDialog>
      )}
    </>
  )
}
