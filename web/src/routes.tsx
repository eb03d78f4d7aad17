/** The pages by path. Pages that need large libraries are loaded when they are opened. */

import { createRootRoute, createRoute, createRouter, lazyRouteComponent, Link } from "@tanstack/react-router"
import { readFilter } from "./executions/filter"
import { Shell } from "./layout/shell"
import { Overview } from "./overview/overview"

const root = createRootRoute({
  component: Shell,
  notFoundComponent: () => (
    <div className="empty">
      <strong>There is no page here.</strong>
      <Link to="/">Overview</Link>
    </div>
  ),
})

const pages = [
  createRoute({ getParentRoute: () => root, path: "/", component: Overview }),
  createRoute({
    getParentRoute: () => root,
    path: "/executions",
    validateSearch: readFilter,
    component: lazyRouteComponent(() => import("./executions/list"), "Executions"),
  }),
  createRoute({ getParentRoute: () => root, path: "/executions/$id", component: lazyRouteComponent(() => import("./executions/execution"), "ExecutionPage") }),
  createRoute({ getParentRoute: () => root, path: "/workflows", component: lazyRouteComponent(() => import("./workflows/list"), "Workflows") }),
  createRoute({ getParentRoute: () => root, path: "/workflows/$name", component: lazyRouteComponent(() => import("./workflows/workflow"), "WorkflowPage") }),
  createRoute({ getParentRoute: () => root, path: "/approvals", component: lazyRouteComponent(() => import("./approvals/page"), "Approvals") }),
  createRoute({ getParentRoute: () => root, path: "/schedules", component: lazyRouteComponent(() => import("./operate/schedules"), "Schedules") }),
  createRoute({ getParentRoute: () => root, path: "/workers", component: lazyRouteComponent(() => import("./operate/workers"), "Workers") }),
  createRoute({ getParentRoute: () => root, path: "/dead", component: lazyRouteComponent(() => import("./operate/dead"), "DeadLetters") }),
] as const

export const router = createRouter({ routeTree: root.addChildren(pages), defaultPreload: "intent", scrollRestoration: true })

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router
  }
}
