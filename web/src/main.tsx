import { QueryClient, QueryClientProvider } from "@tanstack/react-query"
import { RouterProvider } from "@tanstack/react-router"
import { StrictMode } from "react"
import { createRoot } from "react-dom/client"
import { Refused } from "./api/client"
import { router } from "./routes"
import { SignedIn } from "./session/session"
import "./theme.css"
import "./base.css"
import "./executions/executions.css"

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      retry: (count, error) => error instanceof Refused && error.isTemporary && count < 5,
      refetchOnWindowFocus: true,
      staleTime: 1000,
    },
  },
})

const place = document.getElementById("root")
if (place === null) throw new Error("index.html has no element #root")
createRoot(place).render(
  <StrictMode>
    <QueryClientProvider client={queries}>
      <SignedIn>
        <RouterProvider router={router} />
      </SignedIn>
    </QueryClientProvider>
  </StrictMode>,
)
