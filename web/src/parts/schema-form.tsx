/** A form made from a JSON Schema. What the form cannot show as fields is edited as JSON. */

import { useId } from "react"
import { fieldsOf, textOf, valueOf, type Field } from "./schema"

interface Props {
  schema: unknown
  /** Texts of the fields by name; with a schema without fields, the JSON text under "". */
  texts: Record<string, string>
  onChange: (texts: Record<string, string>) => void
}

export function SchemaForm({ schema, texts, onChange }: Props) {
  const fields = fieldsOf(schema)
  const base = useId()
  if (fields === null) {
    return (
      <label className="field">
        <span>Input</span>
        <textarea rows={8} spellCheck={false} value={texts[""] ?? ""} placeholder="JSON; empty for none" onChange={(event) => onChange({ ...texts, "": event.target.value })} />
      </label>
    )
  }
  return (
    <>
      {fields.map((field) => (
        <div className="field" key={field.name}>
          <label htmlFor={`${base}-${field.name}`}>
            <strong>{field.title}</strong>
            {field.isRequired ? "" : <span className="muted"> optional</span>}
          </label>
          <Control id={`${base}-${field.name}`} field={field} text={texts[field.name] ?? textOf(field)} onChange={(text) => onChange({ ...texts, [field.name]: text })} />
          {field.description && <span className="hint">{field.description}</span>}
        </div>
      ))}
    </>
  )
}

function Control({ id, field, text, onChange }: { id: string; field: Field; text: string; onChange: (text: string) => void }) {
  switch (field.kind) {
    case "boolean":
      return (
        <select id={id} value={text} onChange={(event) => onChange(event.target.value)}>
          <option value="">–</option>
          <option value="true">yes</option>
          <option value="false">no</option>
        </select>
      )
    case "choice":
      return (
        <select id={id} value={text} required={field.isRequired} onChange={(event) => onChange(event.target.value)}>
          <option value="">–</option>
          {field.choices.map((choice) => (
            <option key={choice}>{choice}</option>
          ))}
        </select>
      )
    case "number":
      return <input id={id} type="number" step={field.isWhole ? 1 : "any"} value={text} required={field.isRequired} onChange={(event) => onChange(event.target.value)} />
    case "text":
      return <input id={id} type="text" value={text} required={field.isRequired} onChange={(event) => onChange(event.target.value)} />
    case "json":
      return <textarea id={id} rows={4} spellCheck={false} value={text} placeholder="JSON" onChange={(event) => onChange(event.target.value)} />
  }
}

export { valueOf }
