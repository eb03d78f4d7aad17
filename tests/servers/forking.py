"""Processes of Dal Segno that are forked by one that has imported everything: they start in milliseconds, not in half
a second.

`ForkServer` starts ``python -m tests.servers.forking`` once per test process. For each request it forks a process,
which takes the streams, the environment and the folder it is given and then runs the module, as ``python -m`` does, or
the file, as ``python`` does; with ``-c`` the first argument is the program itself. `Forked` is such a process with the
interface of `subprocess.Popen`, `ForkedChild` with what the engine uses of `asyncio.subprocess.Process`.

What a process does before its first own statement is that of the fork server: tests of how a program starts, of
variables that the interpreter reads itself, and of what is imported when, start an interpreter.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import secrets
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import types
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tests.servers.process import die_with_parent

ROOT = Path(__file__).parents[2]
STATUS = struct.Struct("=i")
LARGEST = 128 * 1024
"""Bytes of a request."""
READ_BY_INTERPRETER = (
    "PYTHONWARNINGS",
    "PYTHONHASHSEED",
    "PYTHONASYNCIODEBUG",
    "PYTHONHOME",
    "PYTHONDEVMODE",
)


LAUNCHER = """\
#!{python} -IS
import json, os, socket, struct, sys
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.connect("\\0{address}")
request = json.dumps(["{module}", sys.argv[1:], dict(os.environ), os.getcwd()])
socket.send_fds(server, [request.encode()], [0, 1, 2])
server.recv(4)
ended = server.recv(4)
sys.exit(struct.unpack("=i", ended)[0] % 256 if ended else 137)
"""


class ForkServer:
    """``modules``, and those of them that are packages with all that is in them, are imported before the first fork.
    Each module that is run has ``main``, or is a package."""

    def __init__(self, *modules: str) -> None:
        self._lock = threading.Lock()
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._address = f"dalsegno-tests-{os.getpid()}-{secrets.token_hex(8)}"
        """In the abstract namespace, where nothing is left behind."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, listener:
            listener.bind(f"\0{self._address}")
            listener.listen()
            given = [theirs.fileno(), listener.fileno()]
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.servers.forking", *map(str, given), *modules],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                pass_fds=given,
                process_group=0,
            )
        atexit.register(self.close)

    def fork(
        self,
        module: str,
        arguments: Sequence[str],
        streams: tuple[int, int, int],
        environment: Mapping[str, str],
        folder: str | os.PathLike[str] | None = None,
    ) -> tuple[int, int]:
        """The process id, and a descriptor from which its status can be read when it has ended."""
        request = json.dumps([module, list(arguments), dict(environment), os.fspath(folder or Path.cwd())])
        ended, reported = os.pipe()
        try:
            with self._lock:
                socket.send_fds(self._connection, [request.encode()], [*streams, reported])
                (pid,) = STATUS.unpack(self._connection.recv(STATUS.size))
        except BaseException:
            os.close(ended)
            raise
        finally:
            os.close(reported)
        return pid, ended

    def write_launcher(self, file: Path, module: str) -> None:
        """A program that has the module run with its arguments, streams, environment and folder, and ends as that ends.
        Signals reach the launcher only. What ends it kills the program, so it is for programs that end by themselves or
        by ``kill -9``."""
        file.write_text(LAUNCHER.format(python=sys.executable, address=self._address, module=module))
        file.chmod(0o755)

    def close(self) -> None:
        self._connection.close()
        self._process.wait()


@functools.cache
def fork_server(*modules: str) -> ForkServer:
    """One per test process."""
    return ForkServer(*modules)


def program_server() -> ForkServer:
    """Of the command line."""
    return fork_server("dalsegno.cli", "dalsegno.server", "dalsegno.adapters")


def status_of(ended: int) -> int:
    """As `subprocess.Popen.returncode`. A server that has gone has taken its processes along."""
    found = os.read(ended, STATUS.size)
    return STATUS.unpack(found)[0] if found else -signal.SIGKILL


class Forked(subprocess.Popen[str]):
    """``python -m module``, ``python file.py`` or ``python -c text``, forked. It ends with the fork server, which ends
    with this process."""

    def __init__(self, module: str, arguments: Sequence[str], **options: Any) -> None:
        self._module = module
        self._arguments = arguments
        self._ended = -1
        super().__init__([sys.executable, module, *arguments], **{"text": True, **options})

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, *others: Any) -> None:
        _close_fds, _pass_fds, folder, environment, _info, _flags, shell, *pipes = others[:13]
        assert not shell
        assert preexec_fn is None
        p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite = pipes
        stdin, stdout, stderr = (
            own if given == -1 else given for own, given in enumerate((p2cread, c2pwrite, errwrite))
        )
        server = program_server()
        self.pid, self._ended = server.fork(
            self._module,
            self._arguments,
            (stdin, stdout, stderr),
            os.environ if environment is None else environment,
            folder,
        )
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]

    def _has_ended(self, seconds: float | None) -> bool:
        if self.returncode is None:
            if not select.select([self._ended], [], [], seconds)[0]:
                return False
            self.returncode = status_of(self._ended)
            os.close(self._ended)
        return True

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        return self.returncode if self._has_ended(0) else None

    def _wait(self, timeout: float | None) -> int:
        if not self._has_ended(timeout):
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return self.returncode


def run_program(
    *arguments: str,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 60,
) -> subprocess.CompletedProcess[str]:
    """The command line with these arguments: what it printed and how it ended."""
    return run_python("dalsegno", *arguments, cwd=cwd, env=env, timeout=timeout)


def run_python(
    module: str,
    *arguments: str,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 60,
) -> subprocess.CompletedProcess[str]:
    """The same of a module, a file or, with ``-c``, a text."""
    given = {"cwd": cwd, "env": env, "stdin": subprocess.DEVNULL}
    with Forked(module, arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **given) as program:
        try:
            out, err = program.communicate(timeout=timeout)
        except BaseException:
            program.kill()
            raise
    return subprocess.CompletedProcess(program.args, program.returncode, out, err)


class ForkedChild:
    """With its standard input and output at one socket."""

    def __init__(
        self, pid: int, ended: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.pid = pid
        self.stdout = reader
        self.stdin = writer
        self.returncode: int | None = None
        self._transport = writer.transport
        self._ended = ended
        self._over = asyncio.Event()
        asyncio.get_running_loop().add_reader(ended, self._end)

    @classmethod
    async def start(
        cls, server: ForkServer, module: str, arguments: Sequence[str], environment: Mapping[str, str]
    ) -> ForkedChild:
        ours, theirs = socket.socketpair()
        nothing = os.open(os.devnull, os.O_WRONLY)
        with theirs:
            try:
                streams = (theirs.fileno(), theirs.fileno(), nothing)
                pid, ended = server.fork(module, arguments, streams, environment)
            finally:
                os.close(nothing)
        reader, writer = await asyncio.open_connection(sock=ours)
        child = cls(pid, ended, reader, writer)
        weakref.finalize(child, _close, ours)  # its event loop may end before the child does
        return child

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._ended)
        self.returncode = status_of(self._ended)
        os.close(self._ended)
        self._over.set()

    def send_signal(self, number: int) -> None:
        if self.returncode is not None:
            raise ProcessLookupError
        os.kill(self.pid, number)

    async def wait(self) -> int:
        await self._over.wait()
        assert self.returncode is not None
        return self.returncode


def _close(connection: socket.socket) -> None:
    """Close what a transport without a loop has left open."""
    descriptor = connection.detach()
    if descriptor >= 0:
        os.close(descriptor)


# --- the fork server -----------------------------------------------------------------------------


class TestsEnded(Exception):
    """The test process has ended."""


class Requests:
    """Where they come from, and the processes that run because of them."""

    def __init__(self, connection: socket.socket, listener: socket.socket) -> None:
        self._connection = connection
        self._listener = listener
        self._reports: dict[int, int] = {}
        """Where the status of each process goes."""
        self._launched: dict[int, int] = {}
        """Connections of launchers, which end when a launcher is killed, and their processes."""
        self._woken, self._wake = os.pipe()
        for each in (self._woken, self._wake):
            os.set_blocking(each, False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)

    def serve(self) -> Any:
        """Returns a request, in each process that is to fulfil it."""
        while True:
            waiting: list[Any] = [self._connection, self._listener, self._woken, *self._launched]
            ready, _, _ = select.select(waiting, [], [])
            if self._woken in ready:
                os.read(self._woken, 4096)
                self._reap()
            for launcher in self._launched.keys() & ready:
                os.kill(self._launched.pop(launcher), signal.SIGKILL)
            if self._connection in ready:
                message, descriptors, _, _ = socket.recv_fds(self._connection, LARGEST, 4)
                if not message:
                    raise TestsEnded
                if self._fork(message, descriptors, self._connection.fileno()):
                    return json.loads(message)
            elif self._listener in ready:
                connection, _ = self._listener.accept()
                message, descriptors, _, _ = socket.recv_fds(connection, LARGEST, 3)
                answer = connection.detach()
                if self._fork(message, [*descriptors, answer], answer):
                    return json.loads(message)
                self._launched[answer] = next(reversed(self._reports))

    def end(self) -> None:
        for pid in self._reports:
            os.kill(pid, signal.SIGKILL)

    def _fork(self, message: bytes, descriptors: list[int], answer: int) -> bool:
        """Whether this is the new process."""
        *streams, reported = descriptors
        pid = os.fork()
        if pid == 0:
            self._leave_to_parent(streams, reported)
            return True
        for each in streams:
            os.close(each)
        self._reports[pid] = reported
        os.write(answer, STATUS.pack(pid))
        return False

    def _leave_to_parent(self, streams: list[int], reported: int) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        die_with_parent()
        for target, given in enumerate(streams):
            os.dup2(given, target)
        for each in (*streams, reported, self._woken, self._wake, *self._reports.values()):
            os.close(each)
        self._connection.close()
        self._listener.close()

    def _reap(self) -> None:
        while self._reports:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            reported = self._reports.pop(pid)
            self._launched.pop(reported, None)
            with contextlib.suppress(BrokenPipeError):  # the one who started it waits no more
                os.write(reported, STATUS.pack(os.waitstatus_to_exitcode(status)))
            os.close(reported)


def serve(connection: socket.socket, listener: socket.socket, modules: Sequence[str]) -> Any:
    """Forks until the test process ends. Returns None then, and a request in each process that is to fulfil it."""
    for name in modules:
        import_whole(name)
    if "dalsegno.cli" in modules:
        prepare_command_line()
    build_grammars()
    gc.collect()
    gc.freeze()
    requests = Requests(connection, listener)
    try:
        return requests.serve()
    except TestsEnded:
        requests.end()
        return None


def import_whole(name: str) -> None:
    module = importlib.import_module(name)
    for found in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{name}."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)


def prepare_command_line() -> None:
    """Builds the commands from their functions before the first fork: it takes a tenth of a second."""
    import typer.main

    from dalsegno.cli.main import app

    typer.main.get_command = functools.cache(typer.main.get_command)
    typer.main.get_command(app)


def build_grammars() -> None:
    """As servers and workers do it when they start, and processes for heavy steps and checks when they first need them:
    it takes a sixth of a second each time."""
    from dalsegno.engine.process import HTTP_NODE, warm_up
    from dalsegno.nodes.registry import builtin_registry

    warm_up(builtin_registry(), (HTTP_NODE,))


def become(module: str, arguments: list[str], environment: dict[str, str], folder: str) -> None:
    """Makes this process one that was started with these, and runs the module."""
    os.setsid()
    base = sys.path[1 + len(_python_path(os.environ)) :]
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    os.chdir(folder)
    first = [] if environment.get("PYTHONSAFEPATH") or module.endswith(".py") else [folder]
    sys.path[:] = [*first, *_python_path(environment), *base]
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))
    sys.pycache_prefix = environment.get("PYTHONPYCACHEPREFIX") or None
    _open_streams(environment)
    sys.argv = [module, *arguments]
    try:
        run(module, arguments)
    except SystemExit as end:
        if isinstance(end.code, int):
            _leave(end.code)
        raise
    _leave(0)


def run(module: str, arguments: list[str]) -> None:
    loaded = sys.modules.get(module)
    if module == "-c":
        text = arguments[0]
        del sys.argv[1]
        sys.modules["__main__"] = main = types.ModuleType("__main__")
        exec(compile(text, "<string>", "exec"), main.__dict__)
    elif module.endswith(".py"):
        sys.path.insert(0, str(Path(module).resolve().parent))
        runpy.run_path(module, run_name="__main__")
    elif loaded is None or hasattr(loaded, "__path__"):
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        loaded.main(*map(int, arguments))


def _open_streams(environment: Mapping[str, str]) -> None:
    encoding, _, errors = environment.get("PYTHONIOENCODING", "").partition(":")
    is_direct = bool(environment.get("PYTHONUNBUFFERED"))
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        buffering = 0 if is_direct and number else -1
        binary: Any = os.fdopen(number, "wb" if number else "rb", buffering, closefd=False)
        stream = io.TextIOWrapper(
            binary,
            encoding or "utf-8",
            "backslashreplace" if number == 2 else errors or "strict",
            line_buffering=number == 2 or os.isatty(number),
            write_through=is_direct,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _leave(code: int) -> NoReturn:
    """As the interpreter ends, except that it takes no module apart: that takes longer than most programs run."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def _python_path(environment: Mapping[str, str]) -> list[str]:
    return [each for each in environment.get("PYTHONPATH", "").split(os.pathsep) if each]


def can_be_forked(environment: Mapping[str, str]) -> bool:
    """Whether the interpreter itself reads nothing from it that differs from what the fork server was started with."""
    return all(environment.get(name) == os.environ.get(name) for name in READ_BY_INTERPRETER)


if __name__ == "__main__":
    to_parent, for_launchers = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    request = serve(to_parent, for_launchers, sys.argv[3:])
    if request is not None:
        become(*request)
