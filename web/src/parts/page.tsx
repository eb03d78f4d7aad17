/** A page that shows one list: its heading, loading, refusals, and what it says when there is nothing. */

import type { UseQueryResult } from "@tanstack/react-query"
import type { ReactNode } from "react"
import { Refusal } from "./refusal"

interface Props<T> {
  title: string
  query: UseQueryResult<T>
  empty: string
  actions?: ReactNode
  isEmpty?: (data: T) => boolean
  children: (data: T) => ReactNode
}

export function Page<T>({ title, query, empty, actions, isEmpty = hasNoItems, children }: Props<T>) {
  return (
    <>
      <div className="spread">
        <h1>{title}</h1>
        {actions}
      </div>
      {query.isError && <Refusal error={query.error} onRetry={() => void query.refetch()} />}
      {query.data !== undefined && (
        <div className="card table-frame">
          {isEmpty(query.data) ? (
            <div className="empty">
              <strong>{empty}</strong>
            </div>
          ) : (
            children(query.data)
          )}
        </div>
      )}
      {query.isPending && <p className="muted">Loading…</p>}
    </>
  )
}

function hasNoItems(data: unknown): boolean {
  return (data as { items?: unknown[] }).items?.length === 0
}
