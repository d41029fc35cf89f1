"""protocol.schema.json and protocol.md agree with the code on real messages and on invalid messages."""

import json
import re
from functools import cache

import pytest
from ampscale_conformance.cases import every_case
from ampscale_conformance.model.adapter import CAPABILITIES, METHODS, RANKS_SECONDS
from ampscale_conformance.model.clauses import spec_folder
from ampscale_conformance.remote.client import _BYE_SECONDS, _STARTS, SECONDS, START_SECONDS
from ampscale_conformance.remote.codec import OUTCOMES, PROTOCOL, Codec, hello_from_json, read_reply, write_line
from ampscale_conformance.remote.process import LONGEST
from ampscale_conformance.run.check import check
from jsonschema import Draft202012Validator
from mutants.loop import Loop
from remote.commands import served
from remote.fakes import plain

from ampscale import LossScaleRule
from ampscale.parsing import DEEPEST, LONGEST_NUMBER

FOLDER = spec_folder() / "conformance"
SCHEMA = json.loads((FOLDER / "protocol.schema.json").read_text())
PAGE = (FOLDER / "protocol.md").read_text("utf-8")
OWN = ("hello", "reset", "bye")
TAKES = {call: method.takes for call, method in METHODS.items()} | {"hello": ("protocol",), "reset": (), "bye": ()}
LONG = 10**4  # characters: an array of all float16 numbers would take the validator seconds


def is_valid(message, definition):
    """Return True if a message conforms to a definition of the schema."""
    return validator(definition).is_valid(message)


@cache
def validator(definition):
    return Draft202012Validator(SCHEMA | {"anyOf": [{"$ref": f"#/$defs/{definition}"}]})


class NumberHandles:
    """Registry of handles that are numbers."""

    def number(self, _kind, handle):
        return handle

    def lookup(self, _kind, number):
        return number


def is_accepted(call, reply):
    """Return True if the code accepts a reply to a call."""
    try:
        outcome, value = read_reply(write_line(reply), 1)
        if call in OWN and outcome != "result":
            return call == "hello" and outcome == "unsupported"
        if outcome == "result" and call == "hello":
            hello_from_json(value)
        elif outcome == "result":
            Codec("numpy", NumberHandles()).decode("nothing" if call in OWN else METHODS[call].gives, value)
    except ValueError:
        return False
    return True


# --- the schema ---


def test_the_schema_defines_every_request_and_reply():
    """No other definition has a dot in its name. Arguments, levels and capabilities are those of `METHODS`."""
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == Draft202012Validator.META_SCHEMA["$id"]
    assert {name.partition(".")[0] for name in SCHEMA["$defs"] if "." in name} == {*METHODS, *OWN}
    for call in (*METHODS, *OWN):
        request = SCHEMA["$defs"][f"{call}.request"]
        assert request["properties"]["call"] == {"const": call}
        assert f"{call}.reply" in SCHEMA["$defs"]
        assert request["properties"]["arguments"]["required"] == list(TAKES[call])
        needs = METHODS[call].needs if call in METHODS else ""
        if needs in CAPABILITIES:
            assert request["description"].startswith(f"Level {CAPABILITIES[needs][0]}, capability {needs}. ")
        elif call in METHODS:
            assert request["description"].startswith(f"Level {needs}. ")
    references = {reference["$ref"] for reference in SCHEMA["$defs"]["request"]["oneOf"]}
    assert references == {f"#/$defs/{call}.request" for call in (*METHODS, *OWN)}


def test_the_schema_of_a_rule_has_every_field():
    """In a preset, no field is required."""
    rule = SCHEMA["$defs"]["rule"]
    assert rule["required"] == list(rule["properties"]) == list(json.loads(LossScaleRule().to_json()))
    preset = SCHEMA["$defs"]["implementation"]["properties"]["preset"]["oneOf"][1]
    assert (preset["required"], preset["properties"]) == ([], rule["properties"])


def test_the_schema_has_the_version_of_the_protocol():
    assert SCHEMA["$defs"]["hello.request"]["properties"]["arguments"]["properties"]["protocol"] == {"const": PROTOCOL}


def exchanges(recording):
    """Return each request of a recording with its reply."""
    entries = [json.loads(line) for line in recording.read_text().splitlines()[1:]]
    messages = [json.loads(entry.get("request") or entry["reply"]) for entry in entries if "start" not in entry]
    return list(zip(messages[::2], messages[1::2], strict=True))


@pytest.mark.slow
def test_real_messages_conform_to_the_schema(tmp_path):
    """All calls occur. Of exchanges that differ only in digits, one is checked; long ones are not."""
    with served(Loop(), tmp_path / "recording") as adapter:
        check(adapter, cases={(case.clause, case.level): case for case in every_case()}.values())
    recorded = exchanges(tmp_path / "recording")
    assert {request["call"] for request, _ in recorded} == {*METHODS, *OWN}
    texts = {text for text in map(json.dumps, recorded) if len(text) < LONG}
    distinct = {re.sub(r'"[0-9a-f]+"|\d', "", text): json.loads(text) for text in texts}.values()
    assert len(distinct) > 50
    for request, reply in distinct:
        assert is_valid(request, f"{request['call']}.request"), request
        assert is_valid(reply, f"{request['call']}.reply"), reply


ARRAY = {"dtype": "float16", "shape": [1], "bits": ["3c00"]}
FLOAT = "3ff0000000000000"
OUTPUTS = {"parameters": [ARRAY], "finite": True, "scale": FLOAT, "next_scale": FLOAT}
INVALID_PRESETS = ({"init_scale": 1.5}, {"speed": FLOAT}, {"growth_interval": 0})
INVALID_IMPLEMENTATIONS = (
    *({"name": "x", "level": level} for level in (5, "L1")),
    *({"name": "x", "arrays": "numpy"}, {"name": "x", "capabilities": "resume"}, {"name": 1}, {}),
)
RESULTS = [
    *(None, True, False, 0, 7, -1, 2**53 - 1, 2**53, 0.5, "", "text", FLOAT, FLOAT.upper(), FLOAT[1:], [], {}),
    *(ARRAY, ARRAY | {"bits": ["3C00"]}, ARRAY | {"bits": ["3c0"]}, ARRAY | {"dtype": "float8"}, ARRAY | {"shape": [-1]}),
    *(ARRAY | {"device": 0}, {"dtype": "float16", "shape": [1]}, {"dtype": "bool", "shape": [], "bits": ["01"]}),
    *({"dtype": "bool", "shape": [], "bits": ["02"]}, {"dtype": "float64", "shape": [1], "bits": ["3c00"]}),
    *({"tuple": [ARRAY, None]}, {"dict": {"a": [ARRAY]}}, {"tuple": {}}, {"dict": []}, {"list": []}, {"tuple": [], "dict": {}}),
    *([ARRAY], [None], [[ARRAY]], [0], [0, 1], [0, [ARRAY]], [0, []], [[], 0], [0, [], []], [True], [FLOAT]),
    *(OUTPUTS, OUTPUTS | {"loss": FLOAT, "rates": [FLOAT], "attempted": 1}, OUTPUTS | {"scale": 0.5}, OUTPUTS | {"loss": "high"}),
    *(OUTPUTS | {"parameters": ARRAY}, OUTPUTS | {"finite": 1}, OUTPUTS | {"loss": {"dict": {}}}),
    {"protocol": 1, "implementation": plain.SELF},
    {
        "protocol": 1,
        "implementation": {"name": "x", "preset": {"init_scale": FLOAT, "max_scale": None, "reset_bad_steps_on": ["growth"]}},
    },
    *({"protocol": 1, "implementation": {"name": "x", "preset": preset}} for preset in INVALID_PRESETS),
    *({"protocol": 1, "implementation": info} for info in INVALID_IMPLEMENTATIONS),
    *({"protocol": protocol, "implementation": {"name": "x"}} for protocol in (2, True)),
    {"protocol": 1, "implementation": {"name": "x"}, "more": 1},
]
OTHERS = [
    *({"unsupported": "no"}, {"absent": ""}, {"raised": {"type": "E", "message": ""}}, {"unsupported": None}, {"absent": 1}),
    *({"raised": error} for error in ("E", {"type": "E"}, {"type": "E", "message": "", "line": 3}, {"type": 1, "message": ""})),
    *({"result": None, "absent": ""}, {"error": "x"}, {}),
]


def is_left_to_the_case(call, reply):
    """Return True if the code accepts the outputs of a step, and the case reports that one is missing or has another type."""
    result = reply.get("result")
    if call != "train_step" or not isinstance(result, dict):
        return False
    return not set(OUTPUTS) <= set(result) or not isinstance(result["parameters"], list) or type(result["finite"]) is int


@pytest.mark.parametrize("call", [*METHODS, *OWN])
def test_schema_and_code_accept_the_same_replies(call):
    """Replies have valid and invalid results of all kinds, and all other outcomes. An id must be a positive integer."""
    replies = [{"id": 1, "result": result} for result in RESULTS] + [{"id": 1, **other} for other in OTHERS]
    replies = [reply for reply in replies if not is_left_to_the_case(call, reply)]
    accepted = [reply for reply in replies if is_accepted(call, reply)]
    assert [reply for reply in replies if is_valid(reply, f"{call}.reply")] == accepted
    assert 0 < len(accepted) < len(replies)
    assert all(is_valid(reply, "reply") for reply in accepted)
    assert not any(is_valid({**accepted[0], "id": id_}, f"{call}.reply") for id_ in (0, "1", None, 1.5))


# --- the page ---


def test_the_page_lists_every_call():
    """Each row contains the arguments, the result, and the level or capability."""
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|([^|\n]*)\|([^|\n]*)\|([^|\n]*)\|$", PAGE, re.MULTILINE)
    rows = [[cell.strip() for cell in row] for row in rows]
    row_of = {call: row for row in rows for call in re.findall(r"`(\w+)`", row[0])}
    assert set(row_of) == {*METHODS, *OWN}
    for call, method in METHODS.items():
        _, arguments, result, requirement = row_of[call]
        assert tuple(re.sub(r" \(.*?\)", "", arguments).split(", ")) == (method.takes or ("",))
        assert requirement == (f"level {method.needs}" if isinstance(method.needs, int) else method.needs)
        text_of = {"number": "float", "nothing": "null", "flag or null": "null; with `applied`", "flag": "true or false"}
        text_of |= {"handle and tree": "a list of the handle and the tree"}
        assert result.startswith(text_of.get(method.gives, method.gives))


def test_the_page_states_every_limit():
    """The limits are seconds, bytes, nesting, digits and starts."""
    assert f"within {SECONDS:g} seconds" in PAGE
    assert f"the reply to `hello` within {START_SECONDS:g}." in PAGE
    assert f"`train_on_ranks` has at least {RANKS_SECONDS:g} seconds" in PAGE
    assert (LONGEST, _STARTS, _BYE_SECONDS) == (2**22, 3, 2)
    assert (DEEPEST, LONGEST_NUMBER) == (100, 1100)
    assert "2**22 bytes, 100 nested lists and objects, and 1100 digits" in PAGE
    assert "three failed starts in a row" in PAGE


def dialogue():
    """Return the requests and replies of the dialogue on the page."""
    block = PAGE.rpartition("## A dialogue")[2].split("```")[1]
    lines = [(line[0], line[2:]) for line in block.strip().splitlines()]
    assert [arrow for arrow, _ in lines] == ["→", "←"] * (len(lines) // 2)
    texts = [text for _, text in lines]
    return list(zip(texts[::2], texts[1::2], strict=True))


def test_plain_python_gives_the_replies_on_the_page():
    """The dialogue on the page contains all outcomes but "unsupported", and all calls of level 0."""
    calls = plain.Calls()
    for id_, (request_text, reply_text) in enumerate(dialogue(), start=1):
        request = json.loads(request_text)
        assert json.dumps(plain.reply_to(request, calls)) == reply_text
        assert request["id"] == id_
        assert is_valid(request, "request")
        assert is_valid(request, f"{request['call']}.request")
        assert is_valid(json.loads(reply_text), f"{request['call']}.reply")
    outcomes = {outcome for _, reply in dialogue() for outcome in json.loads(reply) if outcome != "id"}
    assert outcomes == set(OUTCOMES) - {"unsupported"}
    shown = [json.loads(request)["call"] for request, _ in dialogue()]
    assert {call for call, method in METHODS.items() if method.needs in (0, "resume")} < set(shown)
    assert (shown[0], shown[-1]) == ("hello", "bye")


def test_the_page_lists_the_six_calls_of_level_0():
    """Cases of level 0 require no capability except "resume" and "rounding"."""
    for case in every_case():
        assert case.level or case.needs <= {"resume", "rounding"}
    sentence = re.search(r"a level 0 client needs\n?\s*((?:`\w+`(?:, | and )?)+)", PAGE)
    zero = {call for call, method in METHODS.items() if method.needs == 0}
    assert set(re.findall(r"\w+", sentence[1].replace(" and ", " "))) == {*OWN, *zero}
