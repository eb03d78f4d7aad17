import react from "@vitejs/plugin-react"
import { defineConfig } from "vitest/config"

const server = process.env["DALSEGNO_SERVER"] ?? "http://127.0.0.1:8700"

export default defineConfig({
  plugins: [react()],
  resolve: { alias: { "react-remove-scroll": new URL("./src/parts/remove-scroll.tsx", import.meta.url).pathname } },
  // The package serves this folder; see `dalsegno.server.ui`.
  build: { outDir: "../src/dalsegno/server/static/web", emptyOutDir: true, assetsInlineLimit: 0, modulePreload: { polyfill: false } },
  worker: { format: "es" },
  server: { proxy: { "/v1": server, "/docs": server, "/metrics": server } },
  test: { include: ["tests/**/*.test.{ts,tsx}"] },
})
