"""
Implementations that are wrong, each in its own way: `python fakes.py NAME FOLDER`. Each leaves its process ids in the folder.

All but what is wrong is conformance/examples/plain_python.py. A fault of `STRUCK` shows in the one case whose growth interval
is `STRIKES`, at its second update; one of `AT_HELLO` at once; one of `LIES` in what is claimed.
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

STRIKES = 7
LONG = 600  # seconds: beyond every limit
HUGE = 2**25  # bytes: beyond the longest line


def say(text):
    """Writes to stdout, all of it, and at once."""
    data = text if isinstance(text, bytes) else text.encode()
    while data:
        data = data[os.write(1, data) :]


def tell(reply):
    """Writes a reply, as a right implementation does."""
    say(json.dumps(reply) + "\n")


# --- in one case: each takes the right reply, and does something else ---


def slow(reply):
    time.sleep(LONG)
    tell(reply)


def slow_drip(reply):
    for sign in json.dumps(reply) * 1000:
        say(sign)
        time.sleep(0.05)


def deaf_to_sigterm(reply):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    slow(reply)


def grandchild_holds_the_pipes(reply):
    enter(subprocess.Popen(["sleep", str(LONG)]).pid)
    slow(reply)


def dies_and_leaves_a_grandchild(_reply):
    enter(subprocess.Popen(["sleep", str(LONG)]).pid)
    os._exit(5)


def floods_stdout_without_newline(_reply):
    say(b"x" * HUGE)
    time.sleep(LONG)


def floods_stdout(_reply):
    while True:
        say("{}\n" * 1000)


def floods_stderr_for_ever(_reply):
    while True:
        os.write(2, b"noise\n" * 10000)


def floods_stderr(reply):
    for _ in range(200):
        os.write(2, b"noise\n" * 10000)
    tell(reply)


def crash(_reply):
    os.write(2, b"at\n\nits \x1b[31mwits' end")
    os._exit(3)


def segfault(_reply):
    os.kill(os.getpid(), signal.SIGSEGV)


def truncated_then_dead(reply):
    say(json.dumps(reply)[:9])
    os._exit(0)


def closes_stdout(_reply):
    os.close(1)
    time.sleep(LONG)


def extra_line(reply):
    tell(reply)
    tell(reply)


def windows_newline(reply):
    say(json.dumps(reply) + "\r\n")


def raises_half_a_character(reply):
    say(f'{{"id": {reply["id"]}, "raised": {{"type": "Half\\u0000", "message": "\\ud800"}}}}\n')


STRUCK = {  # by name: the verdict, words of the message, and the fault
    "slow drip": ("timeout", "no reply within 1 s", slow_drip),
    "deaf to SIGTERM": ("timeout", "no reply within 1 s; its stderr is empty", deaf_to_sigterm),
    "a grandchild holds the pipes": ("timeout", "no reply within 1 s", grandchild_holds_the_pipes),
    "floods stderr for ever": ("timeout", "no reply within 1 s; its stderr ends: noise | noise", floods_stderr_for_ever),
    "dies and leaves a grandchild": ("crash", "its process ended, exit status 5", dies_and_leaves_a_grandchild),
    "crash": ("crash", "its process ended, exit status 3; its stderr ends: at | its  [31mwits' end", crash),
    "segfault": ("crash", "its process ended, killed by SIGSEGV; its stderr is empty", segfault),
    "truncated, then dead": ("crash", "its process ended after 9 bytes of a line, exit status 0", truncated_then_dead),
    "floods stdout": ("protocol-error", "expected ", floods_stdout),
    "floods stdout without newline": (
        "protocol-error",
        "a line of more than 4194304 bytes, which begins with b'xxxx",
        floods_stdout_without_newline,
    ),
    "closes stdout": ("protocol-error", "it closed its standard output, but still runs", closes_stdout),
    "extra line": ("protocol-error", "expected a reply with the id ", extra_line),
    "raises half a character": ("error", "update raised Half : \\ud800", raises_half_a_character),
    "floods stderr": ("pass", "", floods_stderr),
    "Windows newline": ("pass", "", windows_newline),
}


# --- at once ---


def echo(request):
    tell(request)


def dies_silently(_request):
    os._exit(0)


def never_answers(_request):
    time.sleep(LONG)


AT_HELLO = {
    "echo": ("protocol-error", echo),
    "never answers hello": ("timeout", never_answers),
    "dies silently at hello": ("crash", dies_silently),
    "unsupported hello": ("protocol-error", lambda request: tell({"id": request["id"], "unsupported": "protocol 1"})),
}


# --- in what is claimed, or everywhere ---


def claims(level=0, *capabilities):
    """Level 0 in truth, and this in its words."""

    def answer(request, calls, at):
        reply = plain.reply_to(request, calls)
        if request["call"] == "hello":
            reply["result"]["implementation"] = {"name": "liar", "level": level, "capabilities": capabilities}
        elif request["call"] not in ("create", "update", "read_scale", "reset", "bye"):
            reply = {"id": at, "absent": "I never wrote that"}
        tell(reply)

    return answer


def another_each_time(request, calls, at):
    """Its name is the number of processes before it; and it dies when it is asked anything."""
    if at > 1:
        os._exit(1)
    reply = plain.reply_to(request, calls)
    reply["result"]["implementation"] = {"name": str(len(list(Path(sys.argv[2]).iterdir())))}
    tell(reply)


def starts_once(request, calls, at):
    """Dies at its second request; and no later process of it answers anything."""
    if at > 1 or len(list(Path(sys.argv[2]).iterdir())) > 1:
        os._exit(1)
    tell(plain.reply_to(request, calls))


def starts_every_other_time(request, calls, at):
    """Dies at its second request; and every other process of it answers nothing."""
    if at > 1 or len(list(Path(sys.argv[2]).iterdir())) % 2 == 0:
        os._exit(1)
    tell(plain.reply_to(request, calls))


LIES = {
    "right": claims(0),
    "claims resume": claims(0, "resume"),
    "claims level 4": claims(4, "resume", "replicas"),
    "another each time": another_each_time,
    "starts once": starts_once,
    "starts every other time": starts_every_other_time,
}


def struck(fault):
    """Right, but for the second update of a scaler whose interval is `STRIKES`."""
    seen = {"updates": -1}

    def answer(request, calls, _at):
        reply = plain.reply_to(request, calls)
        if request["call"] == "create":
            seen["updates"] = 0 if request["arguments"]["rule"]["growth_interval"] == STRIKES else -LONG
        seen["updates"] += request["call"] == "update"
        (fault if request["call"] == "update" and seen["updates"] == 2 else tell)(reply)

    return answer


def enter(pid):
    """Leaves a process id behind, for whoever counts what still runs."""
    (Path(sys.argv[2]) / str(pid)).touch()


def main(name):
    enter(os.getpid())
    if name in AT_HELLO:
        answer = lambda request, _calls, _at: AT_HELLO[name][1](request)  # noqa: E731 - it is no more than that
    else:
        answer = struck(STRUCK[name][2]) if name in STRUCK else LIES[name]
    calls = plain.Calls()
    for at, text in enumerate(sys.stdin, start=1):
        request = json.loads(text)
        answer(request, calls, at)
        if request["call"] == "bye":
            break


if __name__ == "__main__":
    main(sys.argv[1])
