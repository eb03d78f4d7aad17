"""Workflows for tests of edited snapshots, with imports that they use and others that they never mention."""

from __future__ import annotations

import importlib
import json
import operator
import os
import pathlib
import shutil
import subprocess
import types
from dataclasses import dataclass
from shutil import rmtree
from subprocess import run as run_command

import pydantic

from dalsegno.lang.python import DurableTask
from tests.python.tasks import echo

# ruff: noqa: F401 - modules that must be there and not be used


@dataclass
class Parcel:
    text: str = ""

    @property
    def weight(self) -> int:
        return len(self.text)

    @weight.setter
    def weight(self, value: str) -> None:
        CALLED.append(value)

    def shout(self, value: str) -> str:
        return f"{self.text}{value}".upper()


class Label(pydantic.BaseModel):
    text: str = ""


CALLED: list[str] = []


def harmless(value):
    return f"harmless {value}"


def plain_upper(value):
    return str(value).upper()


HANDLERS = {"join": os.path.join, "upper": plain_upper}


@DurableTask
def clean_up(path):
    rmtree(path)
    run_command(["true"], check=True)
    return pathlib.Path(path).read_text()


async def calls_after_await(text):
    """A variable holds a function while the machine waits for its argument."""
    call = harmless
    return call(await echo(text))


async def loops(items):
    found = []
    for item in items:
        found.append(item)
        await echo(item)
    return found


async def calls_a_method(text):
    parcel = Parcel(text)
    return parcel.shout(await echo("!"))


async def keeps_of_module(text):
    dump = json.dumps
    return dump(await echo(text))


async def keeps_of_table(name):
    handler = HANDLERS[name]
    await echo(1)
    return handler("a")


async def keeps_evaluator(text):
    evaluate = eval
    return evaluate(await echo(text))


async def keeps_reader(name):
    value = Parcel("x")
    tools = {"read": [getattr]}
    await echo(name)
    return tools["read"][0](value, name)


async def keeps_shell_variable(text):
    shell = os.system
    await echo(text)
    return shell(text)


async def imports_inside(text):
    import base64

    encode = base64.b64encode
    await echo(text)
    return encode(text.encode()).decode() + str(base64.b64decode("YQ=="))
