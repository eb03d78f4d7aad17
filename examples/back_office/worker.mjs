// Makes certificates: a worker in plain Node.js (18 or newer), which knows nothing but the server's address.
//
//     node back_office/worker.mjs
//
// It takes tasks over HTTP, tells every few seconds that it still works on them, and reports what they came to. When it
// is stopped (Ctrl-C, SIGTERM) it takes no more, finishes what it has begun, and ends.

import { mkdir, rename, writeFile } from "node:fs/promises";
import { hostname } from "node:os";
import { setTimeout as pause } from "node:timers/promises";

const server = process.env.DALSEGNO_SERVER ?? "http://127.0.0.1:8700";
const folder = process.env.CERTIFICATES ?? "certificates";
const printing = Number(process.env.PRINTING_MS ?? 200);
// One name per process. One that keeps its name when it is started again gets back sooner what a kill took from it.
const worker = process.env.WORKER_NAME ?? `${hostname()}-${process.pid}`;
const atOnce = 4;

const running = new Map(); // task id -> task
const stop = new AbortController();

// -- the work ------------------------------------------------------------------------------------------------

const tasks = {
  async certificate({ student, course }, task) {
    await pause(printing); // a slow printer
    if (task.lost) throw new Error("another worker has the task now");
    const number = task.idempotency_key.slice(0, 12); // the same for every attempt
    const file = `${folder}/${number}.txt`;
    await mkdir(folder, { recursive: true });
    await writeFile(`${file}.${process.pid}`, `${student} has completed ${course}.\n`);
    await rename(`${file}.${process.pid}`, file); // whole, or not at all
    return { number, file };
  },
};

// -- the protocol: claim, heartbeat, complete or fail ----------------------------------------------------------

async function call(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  if (process.env.DALSEGNO_KEY) headers.Authorization = `Bearer ${process.env.DALSEGNO_KEY}`;
  const reply = await fetch(server + path, { method: "POST", headers, body: JSON.stringify(body), signal });
  if (reply.ok) return reply.json();
  const problem = await reply.json().catch(() => ({}));
  throw Object.assign(new Error(problem.detail ?? reply.statusText), { status: reply.status });
}

const reason = (error) => error.cause?.code ?? error.message; // ECONNREFUSED says more than "fetch failed"

async function claim() {
  const wanted = { worker, queues: ["certificates"], tasks: Object.keys(tasks), wait: 20 };
  return (await call("/v1/tasks/claim", { ...wanted, limit: atOnce - running.size }, stop.signal)).tasks;
}

async function heartbeat() {
  const held = [...running.values()].map(({ id, fence }) => ({ id, fence }));
  for (const id of (await call("/v1/tasks/heartbeat", { worker, tasks: held })).lost) {
    const task = running.get(id);
    if (task) task.lost = true;
  }
}

async function perform(task) {
  running.set(task.id, task);
  let verb = "complete";
  let body;
  try {
    body = { fence: task.fence, output: await tasks[task.name](task.input, task) };
  } catch (error) {
    verb = "fail";
    body = { fence: task.fence, error: { type: error.name, message: error.message, retryable: true } };
  }
  await report(`/v1/tasks/${task.id}/${verb}`, body);
  // Heartbeats name it until the server has heard; it may be here again meanwhile, with another fence.
  if (running.get(task.id) === task) running.delete(task.id);
}

/** Until the server has heard it: the same answer twice counts once. */
async function report(path, body) {
  for (;;) {
    try {
      return await call(path, body);
    } catch (error) {
      if (error.status === 409) return console.warn(`too late: ${error.message}`); // another worker has it now
      if (error.status < 500 && error.status !== 429) return console.error(`refused: ${error.message}`);
      console.warn(`the result has to wait: ${reason(error)}`);
      await pause(500);
    }
  }
}

async function takeTasks() {
  while (!stop.signal.aborted) {
    try {
      if (running.size >= atOnce) await pause(20);
      else for (const task of await claim()) perform(task);
    } catch (error) {
      if (stop.signal.aborted) return;
      console.warn(`cannot claim tasks: ${reason(error)}`);
      await pause(500);
    }
  }
}

for (const name of ["SIGINT", "SIGTERM"]) process.once(name, () => stop.abort());
const beating = setInterval(() => heartbeat().catch((error) => console.warn(`not heard: ${reason(error)}`)), 2000);
console.log(`${worker} takes certificates from ${server}`);
await takeTasks();
while (running.size > 0) await pause(20);
clearInterval(beating);
console.log("stopped, nothing is left over");
