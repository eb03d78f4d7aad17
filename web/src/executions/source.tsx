/** The source of a script or Python workflow: the line where it stands, its variables, and what it awaits. */

import type { Schemas } from "../api/client"
import { Json } from "../parts/json"
import type { Definition } from "./definition"

interface Props {
  definition: Definition
  picture: Schemas["PictureInfo"] | null
  failedLine: number | null
}

export function Source({ definition, picture, failedLine }: Props) {
  const lines = definition.source.replace(/\n$/, "").split("\n")
  return (
    <div className="panes">
      <div className="card">
        <pre className="source" tabIndex={0} aria-label="Source">
          {lines.map((text, index) => {
            const number = definition.firstLine + index
            const kind = number === picture?.line ? " here" : number === failedLine ? " failed" : ""
            return (
              <div key={number} className={`line${kind}`} aria-current={kind === " here" ? "step" : undefined}>
                <span>{number}</span>
                <span>{text || " "}</span>
              </div>
            )
          })}
        </pre>
      </div>
      <aside className="stack">
        {picture ? (
          <div className="card">
            <header>
              <h2>Here it stands</h2>
            </header>
            <div className="body stack">
              <p>
                Line {picture.line}
                {picture.awaits && (
                  <>
                    {" "}
                    awaits <code>{picture.awaits}</code>
                  </>
                )}
              </p>
              <h2>Variables</h2>
              {Object.keys(picture.variables).length > 0 ? <Json value={picture.variables} /> : <p className="muted">None yet.</p>}
            </div>
          </div>
        ) : (
          <div className="notice">{failedLine ? `It failed at line ${failedLine}.` : "It does not wait anywhere now."}</div>
        )}
      </aside>
    </div>
  )
}
