"""A worker in a process of its own, which knows nothing but the server's address.

In a first terminal, start the server:

    dalsegno dev

In a second one, this worker; it needs only the standard library and the one file dalsegno/remote_worker.py:

    python examples/remote_worker/resizer.py http://127.0.0.1:8700

In a third one, give it something to do:

    curl -s http://127.0.0.1:8700/v1/definitions -H 'Content-Type: application/json' \
      -d @examples/remote_worker/thumbnails.json
    curl -s http://127.0.0.1:8700/v1/executions -H 'Content-Type: application/json' \
      -d '{"workflow": "thumbnails", "input": {"file": "a.png"}}'
"""

import logging
import sys
import time

from dalsegno.remote_worker import RemoteWorker

worker = RemoteWorker(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8700", queues=["images"])


@worker.task("resize")
def resize(given, task):
    """Stands for something that takes a while; gives up when another worker has got the task."""
    for _ in range(int(given.get("tenths", 1))):
        if task.lost.is_set():
            raise RuntimeError("another worker has the task now")
        time.sleep(0.1)
    return {"file": given["file"].replace(".", "-small."), "attempt": task.attempt}


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    worker.run()
