"""
Faulty implementations: `python fakes.py NAME FOLDER`. Each creates a file in the folder, named after its process id.

Apart from its fault, each behaves like conformance/examples/plain_python.py. A fault of `IN_ONE_CASE` occurs at the second update
of the case whose growth interval is `FAULTY_INTERVAL`, a fault of `AT_HELLO` in the first reply, and a fault of `CLAIMS` in the
claims or after the first reply.
"""

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

_spec = spec_from_file_location("plain_python", Path(__file__).parents[2] / "examples" / "plain_python.py")
plain = module_from_spec(_spec)
_spec.loader.exec_module(plain)

FAULTY_INTERVAL = 7
LONG = 600  # seconds: beyond every limit
HUGE = 2**25  # bytes: beyond the longest line


def write(text):
    """Write to stdout completely and without a buffer."""
    unsent = text if isinstance(text, bytes) else text.encode()
    while unsent:
        unsent = unsent[os.write(1, unsent) :]


def send(reply):
    """Write a reply as a conforming implementation does."""
    write(json.dumps(reply) + "\n")


# --- faults in one case: each function is called with the correct reply ---


def slow(reply):
    time.sleep(LONG)
    send(reply)


def slow_drip(reply):
    for character in json.dumps(reply) * 1000:
        write(character)
        time.sleep(0.05)


def ignores_sigterm(reply):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    slow(reply)


def grandchild_holds_the_pipes(reply):
    record_process(subprocess.Popen(["sleep", str(LONG)]).pid)
    slow(reply)


def dies_and_leaves_a_grandchild(_reply):
    record_process(subprocess.Popen(["sleep", str(LONG)]).pid)
    os._exit(5)


def floods_stdout_without_newline(_reply):
    write(b"x" * HUGE)
    time.sleep(LONG)


def floods_stdout(_reply):
    while True:
        write("{}\n" * 1000)


def floods_stderr_indefinitely(_reply):
    while True:
        os.write(2, b"noise\n" * 10000)


def floods_stderr(reply):
    for _ in range(200):
        os.write(2, b"noise\n" * 10000)
    send(reply)


def crash(_reply):
    os.write(2, b"first\n\nthe \x1b[31mlast")
    os._exit(3)


def segfault(_reply):
    os.kill(os.getpid(), signal.SIGSEGV)


def truncated_then_dead(reply):
    write(json.dumps(reply)[:9])
    os._exit(0)


def closes_stdout(_reply):
    os.close(1)
    time.sleep(LONG)


def extra_line(reply):
    send(reply)
    send(reply)


def windows_newline(reply):
    write(json.dumps(reply) + "\r\n")


def raises_an_unpaired_surrogate(reply):
    write(f'{{"id": {reply["id"]}, "raised": {{"type": "Unpaired\\u0000", "message": "\\ud800"}}}}\n')


IN_ONE_CASE = {  # name: verdict, part of the message, and fault
    "slow drip": ("timeout", "no reply within 0.5 s", slow_drip),
    "ignores SIGTERM": ("timeout", "no reply within 0.5 s; its stderr is empty", ignores_sigterm),
    "a grandchild holds the pipes": ("timeout", "no reply within 0.5 s", grandchild_holds_the_pipes),
    "floods stderr indefinitely": (
        "timeout",
        "no reply within 0.5 s; its stderr ends: noise | noise",
        floods_stderr_indefinitely,
    ),
    "dies and leaves a grandchild": ("crash", "the process ended, exit status 5", dies_and_leaves_a_grandchild),
    "crash": ("crash", "the process ended, exit status 3; its stderr ends: first | the  [31mlast", crash),
    "segfault": ("crash", "the process ended, killed by SIGSEGV; its stderr is empty", segfault),
    "truncated, then dead": ("crash", "the process ended after 9 bytes of a line, exit status 0", truncated_then_dead),
    "floods stdout": ("protocol-error", "expected ", floods_stdout),
    "floods stdout without newline": (
        "protocol-error",
        "expected a line of at most 4194304 bytes, got more: b'xxxx",
        floods_stdout_without_newline,
    ),
    "closes stdout": ("protocol-error", "the process closed its standard output, but still runs", closes_stdout),
    "extra line": ("protocol-error", "expected a reply with the id ", extra_line),
    "raises an unpaired surrogate": ("error", "update raised Unpaired : \\ud800", raises_an_unpaired_surrogate),
    "floods stderr": ("pass", "", floods_stderr),
    "Windows newline": ("pass", "", windows_newline),
}


# --- faults in the first reply ---


def echo(request, _calls, _index):
    send(request)


def dies_silently(_request, _calls, _index):
    os._exit(0)


def never_answers(_request, _calls, _index):
    time.sleep(LONG)


def is_unsupported(request, _calls, _index):
    send({"id": request["id"], "unsupported": "protocol 1"})


AT_HELLO = {  # name: verdict and fault
    "echo": ("protocol-error", echo),
    "never answers hello": ("timeout", never_answers),
    "dies silently at hello": ("crash", dies_silently),
    "unsupported hello": ("protocol-error", is_unsupported),
}


# --- faults in the claims, or after the first reply ---


def claims(level=0, *capabilities):
    """Return a function that claims a level and capabilities, but implements level 0 only."""

    def answer(request, calls, index):
        reply = plain.reply_to(request, calls)
        if request["call"] == "hello":
            reply["result"]["implementation"] = {"name": "claims", "level": level, "capabilities": capabilities}
        elif request["call"] not in ("create", "update", "read_scale", "reset", "bye"):
            reply = {"id": index, "absent": "not implemented"}
        send(reply)

    return answer


def another_each_time(request, calls, index):
    """Send another name in each process, and exit at the second request."""
    if index > 1:
        os._exit(1)
    reply = plain.reply_to(request, calls)
    reply["result"]["implementation"] = {"name": str(len(list(Path(sys.argv[2]).iterdir())))}
    send(reply)


def starts_once(request, calls, index):
    """Exit at the second request. Later processes exit at the first request."""
    if index > 1 or len(list(Path(sys.argv[2]).iterdir())) > 1:
        os._exit(1)
    send(plain.reply_to(request, calls))


def starts_every_other_time(request, calls, index):
    """Exit at the second request. Every other process exits at the first request."""
    if index > 1 or len(list(Path(sys.argv[2]).iterdir())) % 2 == 0:
        os._exit(1)
    send(plain.reply_to(request, calls))


CLAIMS = {
    "conforming": claims(0),
    "claims resume": claims(0, "resume"),
    "claims level 4": claims(4, "resume", "replicas"),
    "another each time": another_each_time,
    "starts once": starts_once,
    "starts every other time": starts_every_other_time,
}


def faulty_in_one_case(fault):
    """Return a function that replies correctly, except to the second update of the scaler with `FAULTY_INTERVAL`."""
    updates = None  # number of updates of the latest scaler; None if it has another growth interval

    def answer(request, calls, _index):
        nonlocal updates
        reply = plain.reply_to(request, calls)
        if request["call"] == "create":
            updates = 0 if request["arguments"]["rule"]["growth_interval"] == FAULTY_INTERVAL else None
        if request["call"] == "update" and updates is not None:
            updates += 1
        if request["call"] == "update" and updates == 2:
            fault(reply)
        else:
            send(reply)

    return answer


def record_process(pid):
    """Record a process id, so that the test can find processes that still run."""
    (Path(sys.argv[2]) / str(pid)).touch()


def main(name):
    record_process(os.getpid())
    if name in IN_ONE_CASE:
        answer = faulty_in_one_case(IN_ONE_CASE[name][2])
    else:
        answer = AT_HELLO[name][1] if name in AT_HELLO else CLAIMS[name]
    calls = plain.Calls()
    for index, text in enumerate(sys.stdin, start=1):
        request = json.loads(text)
        answer(request, calls, index)
        if request["call"] == "bye":
            break


if __name__ == "__main__":
    main(sys.argv[1])
