/** A dialog that asks before something happens, and shows a refusal where it was asked. */

import * as Radix from "@radix-ui/react-dialog"
import { useMutation } from "@tanstack/react-query"
import type { ReactNode } from "react"
import { Refusal } from "./refusal"

interface Props {
  title: string
  children?: ReactNode
  action: string
  isDanger?: boolean
  isReady?: boolean
  onClose: () => void
  onAct: () => Promise<unknown>
}

export function ActionDialog({ title, children, action, isDanger = false, isReady = true, onClose, onAct }: Props) {
  const act = useMutation({ mutationFn: onAct, onSuccess: onClose })
  return (
    <Radix.Root open onOpenChange={(open) => !open && onClose()}>
      <Radix.Portal>
        <Radix.Overlay className="overlay" />
        <Radix.Content className="dialog" aria-describedby={undefined}>
          <Radix.Title asChild>
            <h2>{title}</h2>
          </Radix.Title>
          <form
            className="stack"
            onSubmit={(event) => {
              event.preventDefault()
              act.mutate()
            }}
          >
            {children}
            {act.isError && <Refusal error={act.error} />}
            <div className="row dialog-buttons">
              <button type="button" className="button" onClick={onClose}>
                Close
              </button>
              <button type="submit" className={isDanger ? "button danger" : "button primary"} disabled={!isReady || act.isPending}>
                {act.isPending ? "…" : action}
              </button>
            </div>
          </form>
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  )
}
