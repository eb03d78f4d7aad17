/** Who is signed in, and what they may do: what a key may not do is not offered. */

import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query"
import { createContext, useContext, useState, type ReactNode } from "react"
import { api, data, Refused, type Schemas } from "../api/client"
import { Refusal } from "../parts/refusal"

type Session = Schemas["SessionInfo"]
type Scope = "read" | "run" | "admin" | "worker"

const Current = createContext<Session | null>(null)

/** Whether the caller has a scope. `admin` has all of them. */
export function useMay(scope: Scope): boolean {
  const session = useContext(Current)
  return session !== null && (session.scopes.includes(scope) || session.scopes.includes("admin"))
}

export function useSession(): Session {
  const session = useContext(Current)
  if (session === null) throw new Error("there is no session outside of SignedIn")
  return session
}

export function SignedIn({ children }: { children: ReactNode }) {
  const session = useQuery({
    queryKey: ["session"],
    queryFn: () => data(api.GET("/v1/session")),
    retry: (count, error) => error instanceof Refused && error.isTemporary && count < 100,
    staleTime: 60_000,
  })
  if (session.data) return <Current value={session.data}>{children}</Current>
  if (session.isError && session.error instanceof Refused && session.error.isUnknownCaller) return <SignIn />
  if (session.isError) return <Refusal error={session.error} onRetry={() => void session.refetch()} />
  return <p className="waiting-page muted">{session.failureCount > 0 ? "The server does not answer. Trying again…" : "Loading…"}</p>
}

function SignIn() {
  const queries = useQueryClient()
  const [key, setKey] = useState("")
  const signIn = useMutation({
    mutationFn: () => data(api.POST("/v1/session", { body: { key: key.trim() } })),
    onSuccess: () => queries.resetQueries(),
  })
  return (
    <main className="sign-in">
      <form
        className="card"
        onSubmit={(event) => {
          event.preventDefault()
          signIn.mutate()
        }}
      >
        <div className="body stack">
          <div className="row">
            <img src="/favicon.svg" width="32" height="32" alt="" />
            <h1>Dal Segno</h1>
          </div>
          <label className="field">
            <span>API key</span>
            <input type="password" autoComplete="current-password" value={key} onChange={(event) => setKey(event.target.value)} autoFocus required />
            <span className="hint">
              An operator makes one with <code>dalsegno keys add NAME --scope read</code>.
            </span>
          </label>
          {signIn.isError && <Refusal error={signIn.error} />}
          <button className="button primary" disabled={key.trim() === "" || signIn.isPending}>
            Sign in
          </button>
        </div>
      </form>
    </main>
  )
}

export function SignOut() {
  const session = useSession()
  const queries = useQueryClient()
  const signOut = useMutation({
    mutationFn: () => data(api.DELETE("/v1/session")),
    onSettled: () => queries.resetQueries(),
  })
  if (session.via !== "session") return <span className="muted">{session.via === "open" ? "No keys: open to this machine" : session.name}</span>
  return (
    <span className="row">
      <span className="cut" title={session.scopes.join(", ")}>
        {session.name}
      </span>
      <button type="button" className="button quiet small" onClick={() => signOut.mutate()}>
        Sign out
      </button>
    </span>
  )
}
