"""Ways to hurt a rank from outside.   python3 tests/loss/disturb.py cut PID [PID...]   cuts one connection."""

import ctypes
import os
import random
import signal
import socket
import sys
from pathlib import Path

SYS_PIDFD_OPEN, SYS_PIDFD_GETFD = 434, 438  # the same numbers on every architecture
HOWS = {"both": socket.SHUT_RDWR, "write": socket.SHUT_WR, "read": socket.SHUT_RD}
libc = ctypes.CDLL(None, use_errno=True)


def syscall(number, *args):
    result = libc.syscall(number, *args)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def tcp_sockets(pid):
    """Descriptors of a process that are established TCP connections."""
    established = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "01":
                established.add(f"socket:[{fields[9]}]")
    found = []
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if os.readlink(fd) in established:
                found.append(int(fd.name))
        except FileNotFoundError:
            pass
    return sorted(found)


def cut(pid, fd, how):
    """shutdown() on another process's socket, as if the network had failed there."""
    pidfd = syscall(SYS_PIDFD_OPEN, pid, 0)
    try:
        with socket.socket(fileno=syscall(SYS_PIDFD_GETFD, pidfd, fd, 0)) as s:
            s.shutdown(HOWS[how])
    finally:
        os.close(pidfd)


class Hang:
    """Holds one thread of a process, its other threads going on: as if it were stuck in its own computing. While it lasts
    this process is the thread's tracer, and is told before the process's parent how it ended."""

    SEIZE, INTERRUPT, CONT, WALL = 0x4206, 0x4207, 7, 0x40000000

    def __init__(self, tid, waiting=False):
        """Held at work, outside of any system call, or waiting: for another rank, mostly."""
        self.tid = tid
        libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        libc.ptrace.restype = ctypes.c_long
        self.ptrace(self.SEIZE)
        for _ in range(10_000):
            self.ptrace(self.INTERRUPT)
            os.waitpid(tid, self.WALL)
            call = Path(f"/proc/{tid}/syscall").read_text().split()[0]
            if waiting and call not in ("-1", "running") or not waiting and call == "-1":
                return
            self.ptrace(self.CONT)
        raise RuntimeError(f"thread {tid} never {'waits' if waiting else 'works'}")

    def ptrace(self, request):
        if libc.ptrace(request, self.tid, None, None) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    def wait_ended(self):
        """The exit code of the process."""
        while True:
            _, status = os.waitpid(self.tid, self.WALL)
            if os.WIFEXITED(status) or os.WIFSIGNALED(status):
                return os.waitstatus_to_exitcode(status)


def disturb(kind, pids, rng):
    """Does it to one of `pids`, drawn by rng. Returns (index of the rank, what was done in words)."""
    rank = rng.randrange(len(pids))
    if kind == "kill":
        os.kill(pids[rank], signal.SIGKILL)
        return rank, "SIGKILL"
    if kind == "stop":
        os.kill(pids[rank], signal.SIGSTOP)
        return rank, "SIGSTOP"
    fds = tcp_sockets(pids[rank])
    if not fds:
        raise RuntimeError(f"rank {rank} has no connection to cut")
    number, how = rng.randrange(len(fds)), rng.choice(sorted(HOWS))
    cut(pids[rank], fds[number], how)
    return rank, f"connection {number} of {len(fds)} cut ({how})"


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("cut", "kill", "stop"):
        sys.exit(__doc__)
    print(*disturb(sys.argv[1], [int(a) for a in sys.argv[2:]], random.Random()))
