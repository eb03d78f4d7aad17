/** The deployed workflows. */

import { useQuery } from "@tanstack/react-query"
import { Link } from "@tanstack/react-router"
import { api, data } from "../api/client"
import { Page } from "../parts/page"
import { Ago } from "../parts/time"

export function Workflows() {
  const definitions = useQuery({
    queryKey: ["definitions", "all"],
    queryFn: () => data(api.GET("/v1/definitions", { params: { query: { limit: 500 } } })),
  })
  return (
    <Page title="Workflows" query={definitions} empty="No workflow is deployed. Deploy one: dalsegno deploy examples/hello.yaml">
      {(page) => (
        <table>
          <thead>
            <tr>
              <th>Name</th>
              <th>Written as</th>
              <th className="number">Version</th>
              <th className="number">Deployed</th>
            </tr>
          </thead>
          <tbody>
            {page.items.map((each) => (
              <tr key={each.name} className="link">
                <td>
                  <Link to="/workflows/$name" params={{ name: each.name }} className="plain">
                    {each.name}
                  </Link>
                </td>
                <td>{each.kind === "python" ? "Python" : each.kind}</td>
                <td className="number">{each.version}</td>
                <td className="number">
                  <Ago at={each.created_at} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Page>
  )
}
