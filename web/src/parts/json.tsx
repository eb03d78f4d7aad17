/** A JSON value, coloured, folded below a depth and cut when long: a value of a megabyte must not freeze the page. */

import { useState } from "react"

const OPEN_DEPTH = 2
const FIRST_ITEMS = 50
const LONGEST_TEXT = 2_000

export function Json({ value }: { value: unknown }) {
  return (
    <div className="json" tabIndex={0} role="group" aria-label="JSON value">
      <Value value={value} depth={0} />
    </div>
  )
}

function Value({ value, depth }: { value: unknown; depth: number }) {
  if (typeof value === "string") return <Text value={value} />
  if (typeof value === "number") return <span className="number">{String(value)}</span>
  if (value === null || typeof value !== "object") return <span className="word">{String(value)}</span>
  const isList = Array.isArray(value)
  const entries: [string, unknown][] = isList ? value.map((each, index) => [String(index), each]) : Object.entries(value)
  const [open, close] = isList ? ["[", "]"] : ["{", "}"]
  if (entries.length === 0) return <span>{open + close}</span>
  return <Fold entries={entries} isList={isList} depth={depth} open={open} close={close} />
}

function Fold(props: { entries: [string, unknown][]; isList: boolean; depth: number; open: string; close: string }) {
  const { entries, isList, depth, open, close } = props
  const [isOpen, setOpen] = useState(depth < OPEN_DEPTH && entries.length <= FIRST_ITEMS)
  const [shown, setShown] = useState(FIRST_ITEMS)
  if (!isOpen) {
    return (
      <button type="button" className="fold" onClick={() => setOpen(true)}>
        {open}… {entries.length} {isList ? "items" : "fields"}{close}
      </button>
    )
  }
  return (
    <>
      {open}
      <div className="nested">
        {entries.slice(0, shown).map(([key, each]) => (
          <div key={key}>
            {!isList && <span className="key">{key}: </span>}
            <Value value={each} depth={depth + 1} />
          </div>
        ))}
        {entries.length > shown && (
          <button type="button" className="fold" onClick={() => setShown(shown + 10 * FIRST_ITEMS)}>
            {entries.length - shown} more
          </button>
        )}
      </div>
      {close}
    </>
  )
}

function Text({ value }: { value: string }) {
  const [whole, setWhole] = useState(value.length <= LONGEST_TEXT)
  return (
    <span className="string">
      “{whole ? value : value.slice(0, LONGEST_TEXT)}”
      {!whole && (
        <button type="button" className="fold" onClick={() => setWhole(true)}>
          … {value.length - LONGEST_TEXT} more characters
        </button>
      )}
    </span>
  )
}
