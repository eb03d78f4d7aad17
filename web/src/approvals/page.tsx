/** All approvals that wait, the longest first. */

import { useQuery } from "@tanstack/react-query"
import { Link } from "@tanstack/react-router"
import { api, data } from "../api/client"
import { Page } from "../parts/page"
import { Ago, Countdown } from "../parts/time"
import { Decide } from "./approve"

export function Approvals() {
  const approvals = useQuery({
    queryKey: ["approvals"],
    queryFn: () => data(api.GET("/v1/approvals", { params: { query: { limit: 200 } } })),
    refetchInterval: 5000,
  })
  return (
    <Page title="Approvals" query={approvals} empty="Nothing waits for a decision.">
      {(page) => (
        <table>
          <thead>
            <tr>
              <th>Question</th>
              <th>Workflow</th>
              <th>Asked</th>
              <th>Due</th>
              <th />
            </tr>
          </thead>
          <tbody>
            {page.items.map((each) => (
              <tr key={`${each.execution} ${each.node} ${each.indexes?.join()}`}>
                <td>
                  {each.message || each.node}
                  {each.approvers.length > 0 && <div className="muted">for {each.approvers.join(", ")}</div>}
                </td>
                <td>
                  <Link to="/executions/$id" params={{ id: each.execution }}>
                    {each.workflow}
                  </Link>
                </td>
                <td>
                  <Ago at={each.since} />
                </td>
                <td>{each.due ? <Countdown due={each.due} /> : "–"}</td>
                <td>
                  <Decide approval={each} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Page>
  )
}
