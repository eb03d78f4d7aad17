/** The processes that work, and the queues that they serve. */

import { useQuery } from "@tanstack/react-query"
import { api, data } from "../api/client"
import { Page } from "../parts/page"
import { Ago, duration } from "../parts/time"

export function Workers() {
  const workers = useQuery({ queryKey: ["workers"], queryFn: () => data(api.GET("/v1/workers")), refetchInterval: 5000 })
  const queues = useQuery({ queryKey: ["queues"], queryFn: () => data(api.GET("/v1/queues")), refetchInterval: 5000 })
  return (
    <>
      <Page title="Workers" query={workers} empty="No worker runs. Start one: dalsegno worker" isEmpty={(found) => found.workers.length === 0}>
        {(found) => (
          <table>
            <thead>
              <tr>
                <th>Worker</th>
                <th>State</th>
                <th>Serves</th>
                <th className="number">Runs</th>
                <th className="number">Slots</th>
                <th className="number">Heard</th>
              </tr>
            </thead>
            <tbody>
              {found.workers.map((each) => (
                <tr key={each.id}>
                  <td>
                    <span title={each.id}>{each.host ?? each.id}</span>
                    <div className="muted">
                      {each.process != null && `process ${each.process}`} {each.version && `· ${each.version}`}
                    </div>
                  </td>
                  <td>
                    <span className={`state ${each.state === "alive" ? "good" : "bad"}`}>{each.state}</span>
                  </td>
                  <td>{each.queues.join(", ")}</td>
                  <td className="number">{each.leases}</td>
                  <td className="number">{each.concurrency ?? "–"}</td>
                  <td className="number">{each.heard_at ? <Ago at={each.heard_at} /> : "–"}</td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </Page>
      <Page title="Queues" query={queues} empty="No work is queued." isEmpty={(found) => found.queues.length === 0}>
        {(found) => (
          <table>
            <thead>
              <tr>
                <th>Queue</th>
                <th className="number">Ready</th>
                <th className="number">Oldest</th>
                <th className="number">Running</th>
                <th>Workers</th>
              </tr>
            </thead>
            <tbody>
              {found.queues.map((each) => (
                <tr key={each.queue}>
                  <td>{each.queue}</td>
                  <td className="number">{each.ready}</td>
                  <td className="number">{each.ready > 0 ? duration(each.oldest_seconds) : "–"}</td>
                  <td className="number">{each.running}</td>
                  <td>{each.served ? "served" : <span className="state bad">no living worker serves it</span>}</td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </Page>
    </>
  )
}
