/** Schedules: what starts when, in the zone of the schedule and of the viewer. */

import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query"
import { Link } from "@tanstack/react-router"
import { api, data } from "../api/client"
import { Page } from "../parts/page"
import { Refusal } from "../parts/refusal"
import { StateBadge } from "../parts/state"
import { Ago, duration } from "../parts/time"
import { useMay } from "../session/session"

type Action = "pause" | "resume" | "trigger"

export function Schedules() {
  const mayRun = useMay("run")
  const queries = useQueryClient()
  const schedules = useQuery({
    queryKey: ["schedules"],
    queryFn: () => data(api.GET("/v1/schedules", { params: { query: { limit: 200 } } })),
    refetchInterval: 10_000,
  })
  const act = useMutation({
    mutationFn: ({ name, action }: { name: string; action: Action }): Promise<unknown> => {
      const params = { params: { path: { name } } }
      if (action === "pause") return api.POST("/v1/schedules/{name}/pause", params)
      if (action === "resume") return api.POST("/v1/schedules/{name}/resume", params)
      return api.POST("/v1/schedules/{name}/trigger", params)
    },
    onSettled: () => queries.invalidateQueries({ queryKey: ["schedules"] }),
  })
  return (
    <>
      {act.isError && <Refusal error={act.error} />}
      <Page title="Schedules" query={schedules} empty="There is no schedule. Make one: dalsegno schedule add">
        {(page) => (
          <table>
            <thead>
              <tr>
                <th>Schedule</th>
                <th>Starts</th>
                <th>When</th>
                <th>Next</th>
                <th>Last</th>
                <th />
              </tr>
            </thead>
            <tbody>
              {page.items.map((each) => (
                <tr key={each.name}>
                  <td>
                    {each.name}
                    {each.state === "PAUSED" && <StateBadge state="PAUSED" />}
                  </td>
                  <td>
                    <Link to="/workflows/$name" params={{ name: each.workflow }}>
                      {each.workflow}
                    </Link>
                  </td>
                  <td>
                    {each.cron ? <code>{each.cron}</code> : each.every != null && `every ${duration(each.every)}`}
                    <div className="muted">{each.timezone}</div>
                  </td>
                  <td>{each.next?.[0] ? <Ago at={each.next[0]} /> : "–"}</td>
                  <td>
                    {each.last_execution && each.last ? (
                      <Link to="/executions/$id" params={{ id: each.last_execution }}>
                        <Ago at={each.last} />
                      </Link>
                    ) : (
                      "–"
                    )}
                  </td>
                  <td>
                    {mayRun && (
                      <div className="row">
                        <button type="button" className="button small" onClick={() => act.mutate({ name: each.name, action: "trigger" })}>
                          Start now
                        </button>
                        <button type="button" className="button small" onClick={() => act.mutate({ name: each.name, action: each.state === "PAUSED" ? "resume" : "pause" })}>
                          {each.state === "PAUSED" ? "Resume" : "Pause"}
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
    </>
  )
}
