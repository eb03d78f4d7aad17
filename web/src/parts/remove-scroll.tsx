/**
 * The lock of the page's scrolling that Radix uses below dialogs and menus, in place of the package `react-remove-scroll`:
 * that one adds a style element, which our Content-Security-Policy refuses.
 */

import { useEffect, type ElementType, type ReactNode } from "react"

interface Props {
  as?: ElementType
  allowPinchZoom?: boolean
  shards?: unknown
  children?: ReactNode
}

let locks = 0

export function RemoveScroll({ as: Element = "div", allowPinchZoom: _, shards: __, ...rest }: Props) {
  useEffect(() => {
    locks += 1
    document.body.style.overflow = "hidden"
    return () => {
      locks -= 1
      if (locks === 0) document.body.style.overflow = ""
    }
  }, [])
  return <Element {...rest} />
}
