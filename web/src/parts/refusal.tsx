/** An error of the server as a sentence at the place that it concerns. */

import { Refused } from "../api/client"

export function Refusal({ error, onRetry }: { error: unknown; onRetry?: () => void }) {
  const refused = error instanceof Refused ? error : new Refused(0, error instanceof Error ? error.message : String(error))
  return (
    <div className="notice bad" role="alert">
      <p>{refused.message}</p>
      {refused.findings.length > 1 && (
        <ul>
          {refused.findings.map((each, index) => (
            <li key={index}>
              {each.pointer && <code>{each.pointer}</code>} {each.message}
            </li>
          ))}
        </ul>
      )}
      <p className="row">
        {refused.code && (
          <a href={`/v1/errors/${refused.code}`} target="_blank" rel="noreferrer">
            {refused.code}
          </a>
        )}
        {onRetry && (
          <button type="button" className="button small" onClick={onRetry}>
            Try again
          </button>
        )}
      </p>
    </div>
  )
}
