"""A worker that needs only `pika`: python rabbitmq_worker.py amqp://guest:guest@127.0.0.1:5672/%2F images"""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pika
from pika.exceptions import AMQPError

URL, QUEUE = sys.argv[1:3]
LOST = {"success": False, "error": {"code": "WORKER_LOST", "message": "its first worker is gone"}}


def resize(given):
    time.sleep(given.get("tenths", 1) / 10)  # stands for something that takes a while
    return {"file": given["file"].replace(".", "-small.")}


def run(task):
    try:
        return {"success": True, "output": {"resize": resize}[task["name"]](task["input"])}
    except Exception as error:  # noqa: BLE001 - the orchestrator decides what follows
        return {"success": False, "error": {"message": str(error), "type": type(error).__name__}}


def work(connection, threads):
    channel = connection.channel()
    channel.basic_qos(prefetch_count=1)
    channel.confirm_delivery()
    for method, _, body in channel.consume(f"tasks.{QUEUE}"):
        task = json.loads(body)
        if method.redelivered:  # the connection of another worker is gone: report that, do not run it
            outcome = LOST
        else:
            running = threads.submit(run, task)
            while not running.done():  # heartbeats go on meanwhile
                connection.sleep(0.02)
            outcome = running.result()
        result = {"id": task["id"], "fence": task["fence"], **outcome}
        kept = pika.BasicProperties(content_type="application/json", delivery_mode=2)
        channel.basic_publish("workflows", "workflow.results", json.dumps(result), kept, mandatory=True)
        channel.basic_ack(method.delivery_tag)


with ThreadPoolExecutor(1) as pool:
    while True:
        try:
            work(pika.BlockingConnection(pika.URLParameters(URL)), pool)
        except AMQPError as problem:  # RabbitMQ is away, or has no such queue yet
            print("trying again:", repr(problem), file=sys.stderr)
            time.sleep(1)
