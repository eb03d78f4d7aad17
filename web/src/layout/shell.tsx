/** The frame of every page: navigation, theme, who is signed in, and whether the page is live. */

import { Link, Outlet } from "@tanstack/react-router"
import { useQuery, useQueryClient } from "@tanstack/react-query"
import { createContext, useContext, useEffect, useState } from "react"
import { api, data } from "../api/client"
import { follow, STATE_CHANGES, type Connection } from "../api/streams"
import { SignOut, useMay } from "../session/session"
import { CommandPalette } from "./palette"
import "./shell.css"

const Live = createContext<Connection>("connecting")

export function useConnection(): Connection {
  return useContext(Live)
}

const RENEW_EVERY = 500

/** Renew the lists of executions as states change. The stream is best effort; a slow renewal finds the rest. */
function useChanges(): Connection {
  const queries = useQueryClient()
  const [connection, setConnection] = useState<Connection>("connecting")
  useEffect(() => {
    let renewal: ReturnType<typeof setTimeout> | undefined
    function renew(): void {
      renewal ??= setTimeout(() => {
        renewal = undefined
        void queries.invalidateQueries({ queryKey: ["executions"] })
      }, RENEW_EVERY)
    }
    let was: Connection = "connecting"
    const close = follow({
      url: "/v1/stream",
      kinds: STATE_CHANGES,
      after: null,
      onEvent: renew,
      onConnection(now) {
        if (now === "open" && was === "interrupted") void queries.invalidateQueries()
        was = now
        setConnection(now)
      },
    })
    return () => {
      close()
      clearTimeout(renewal)
    }
  }, [queries])
  return connection
}

const PAGES = [
  { to: "/", name: "Overview", exact: true },
  { to: "/executions", name: "Executions", exact: false },
  { to: "/workflows", name: "Workflows", exact: false },
  { to: "/approvals", name: "Approvals", exact: false },
  { to: "/schedules", name: "Schedules", exact: false },
  { to: "/workers", name: "Workers & queues", exact: false },
  { to: "/dead", name: "Dead letters", exact: false },
] as const

export function Shell() {
  const connection = useChanges()
  const dead = useQuery({
    queryKey: ["dead", "count"],
    queryFn: () => data(api.GET("/v1/dead", { params: { query: { limit: 100 } } })),
    refetchInterval: 15_000,
    enabled: useMay("read"),
  })
  const waiting = dead.data?.items.length ?? 0
  return (
    <Live value={connection}>
      <a className="skip" href="#main">
        Skip to content
      </a>
      <div className="shell">
        <nav aria-label="Pages">
          <Link to="/" className="brand">
            <img src="/favicon.svg" width="26" height="26" alt="" />
            Dal Segno
          </Link>
          <ul>
            {PAGES.map((page) => (
              <li key={page.to}>
                <Link to={page.to} activeOptions={{ exact: page.exact }} activeProps={{ className: "active", "aria-current": "page" }}>
                  {page.name}
                  {page.to === "/dead" && waiting > 0 && <span className="count">{waiting}{dead.data?.next ? "+" : ""}</span>}
                </Link>
              </li>
            ))}
            <li className="outside">
              <a href="/docs">API reference</a>
            </li>
          </ul>
          <div className="foot">
            <CommandPalette />
            <Theme />
            <SignOut />
          </div>
        </nav>
        <div className="content">
          {connection === "interrupted" && (
            <div className="notice waiting" role="status">
              The connection to the server is interrupted. Trying again…
            </div>
          )}
          <main id="main" tabIndex={-1}>
            <Outlet />
          </main>
        </div>
      </div>
    </Live>
  )
}

const THEMES = ["system", "light", "dark"] as const

function Theme() {
  const [theme, setTheme] = useState<string>(() => localStorage.getItem("dalsegno.theme") ?? "system")
  function choose(chosen: string): void {
    setTheme(chosen)
    if (chosen === "system") {
      localStorage.removeItem("dalsegno.theme")
      delete document.documentElement.dataset["theme"]
    } else {
      localStorage.setItem("dalsegno.theme", chosen)
      document.documentElement.dataset["theme"] = chosen
    }
  }
  return (
    <label className="theme">
      <span className="hidden-text">Theme</span>
      <select value={theme} onChange={(event) => choose(event.target.value)}>
        {THEMES.map((each) => (
          <option key={each} value={each}>
            {each.charAt(0).toUpperCase() + each.slice(1)} theme
          </option>
        ))}
      </select>
    </label>
  )
}
