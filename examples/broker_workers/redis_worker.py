"""A worker that needs only `redis`: python redis_worker.py redis://127.0.0.1:6379/0 images"""

import contextlib
import json
import os
import socket
import sys
import threading
import time

import redis

URL, QUEUE = sys.argv[1:3]
WORKER = f"{socket.gethostname()}-{os.getpid()}"
STREAMS = [f"tasks:{QUEUE}:high", f"tasks:{QUEUE}", f"tasks:{QUEUE}:low"]


def resize(given):
    time.sleep(given.get("tenths", 1) / 10)  # stands for something that takes a while
    return {"file": given["file"].replace(".", "-small.")}


def keep_beating():
    client, key = redis.Redis.from_url(URL), f"worker:{WORKER}"
    while True:
        beat = {"queues": QUEUE, "concurrency": 1, "at": int(time.time() * 1000), "info": "{}"}
        with contextlib.suppress(redis.RedisError):
            client.pipeline().hset(key, mapping=beat).expire(key, 15).execute()
        time.sleep(5)


def run(task):
    result = {"id": task["id"], "fence": task["fence"], "worker": WORKER}
    try:
        output = {"resize": resize}[task["name"]](task["input"])
        return {**result, "success": "true", "output": json.dumps(output)}
    except Exception as error:  # noqa: BLE001 - the orchestrator decides what follows
        return {**result, "success": "false", "error": json.dumps({"message": str(error)})}


def work(client):
    for stream in STREAMS:  # the groups are gone after Redis was emptied
        with contextlib.suppress(redis.ResponseError):
            client.xgroup_create(stream, "workers", id="0", mkstream=True)
    while True:
        found = []
        for stream in STREAMS:  # one task at a time, high before normal before low
            found = found or client.xreadgroup("workers", WORKER, {stream: ">"}, count=1)
        found = found or client.xreadgroup("workers", WORKER, dict.fromkeys(STREAMS, ">"), 1, 1000)
        for stream, ((entry, fields),) in found:
            result = run(json.loads(fields[b"task"]))
            client.pipeline().xadd("wf:stream:results", result).xack(stream, "workers", entry).execute()


threading.Thread(target=keep_beating, daemon=True).start()
while True:
    with contextlib.suppress(redis.RedisError):
        work(redis.Redis.from_url(URL, protocol=2))
    time.sleep(1)
