"""protocol.schema.json and protocol.md say what the code does: on what is really sent, and on what is refused."""

import json
import re
from functools import cache

import pytest
from ampscale_conformance.cases import every_case
from ampscale_conformance.model.adapter import CAPABILITIES
from ampscale_conformance.model.clauses import spec_folder
from ampscale_conformance.model.methods import METHODS
from ampscale_conformance.remote.client import _BYE_SECONDS, _STARTS
from ampscale_conformance.remote.codec import PROTOCOL, Codec, hello_from_json
from ampscale_conformance.remote.command_adapter import SECONDS, START_SECONDS, CommandAdapter
from ampscale_conformance.remote.jsonl import OUTCOMES, read_reply, write_line
from ampscale_conformance.remote.process import LONGEST
from ampscale_conformance.run.check import check
from jsonschema import Draft202012Validator
from remote.commands import SERVE
from remote.fakes import plain

from ampscale import LossScaleRule
from ampscale.parsing import DEEPEST, LONGEST_NUMBER

FOLDER = spec_folder() / "conformance"
SCHEMA = json.loads((FOLDER / "protocol.schema.json").read_text())
PAGE = (FOLDER / "protocol.md").read_text("utf-8")
OWN = ("hello", "reset", "bye")
LONG = 10**5  # characters: an array of every float16 is as others, and takes the validator seconds


def holds(message, definition):
    """Whether a message is as a definition of the schema says."""
    return validator(definition).is_valid(message)


@cache
def validator(definition):
    return Draft202012Validator(SCHEMA | {"anyOf": [{"$ref": f"#/$defs/{definition}"}]})


class Numbers:
    """Things that are their numbers."""

    def number(self, _kind, thing):
        return thing

    def lookup(self, _kind, number):
        return number


def reads(call, reply):
    """Whether the code takes a reply to a call."""
    try:
        outcome, what = read_reply(write_line(reply), 1)
        if call in OWN and outcome != "result":
            return call == "hello" and outcome == "unsupported"
        if outcome == "result" and call == "hello":
            hello_from_json(what)
        elif outcome == "result":
            Codec("numpy", Numbers()).decode("nothing" if call in OWN else METHODS[call].gives, what)
    except ValueError:
        return False
    return True


# --- the schema ---


def test_every_call_has_a_definition_of_its_request_and_its_reply():
    """And there is none beside them; what a request takes and needs is what methods.py says."""
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == Draft202012Validator.META_SCHEMA["$id"]
    assert {name.partition(".")[0] for name in SCHEMA["$defs"] if "." in name} == {*METHODS, *OWN}
    for call in (*METHODS, *OWN):
        request = SCHEMA["$defs"][f"{call}.request"]
        assert request["properties"]["call"] == {"const": call}
        assert f"{call}.reply" in SCHEMA["$defs"]
        takes = METHODS[call].takes if call in METHODS else ("protocol",) if call == "hello" else ()
        assert request["properties"]["arguments"]["required"] == list(takes)
        needs = METHODS[call].needs if call in METHODS else ""
        if needs in CAPABILITIES:
            assert request["description"].startswith(f"Level {CAPABILITIES[needs][0]}, capability {needs}. ")
        elif call in METHODS:
            assert request["description"].startswith(f"Level {needs}. ")
    references = {each["$ref"] for each in SCHEMA["$defs"]["request"]["oneOf"]}
    assert references == {f"#/$defs/{call}.request" for call in (*METHODS, *OWN)}


def test_a_rule_has_every_field():
    """And its dtypes, its events and its capabilities are those of the code."""
    rule = SCHEMA["$defs"]["rule"]
    assert rule["required"] == list(rule["properties"]) == list(json.loads(LossScaleRule().to_json()))
    preset = SCHEMA["$defs"]["implementation"]["properties"]["preset"]["oneOf"][1]
    assert (preset["required"], preset["properties"]) == ([], rule["properties"])
    assert SCHEMA["$defs"]["hello.request"]["properties"]["arguments"]["properties"]["protocol"] == {"const": PROTOCOL}


def lines(recording):
    """Each request of a recording with its reply."""
    entries = [json.loads(line) for line in recording.read_text().splitlines()[1:]]
    said = [json.loads(entry.get("request") or entry["reply"]) for entry in entries if "start" not in entry]
    return list(zip(said[::2], said[1::2], strict=True))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """What the suite says to implementations of every level in a case of each clause, and what they answer."""
    file, talks = tmp_path_factory.mktemp("talk") / "talk", []
    cases = {(case.clause, case.level): case for case in every_case()}.values()
    asked = {
        "backends:NUMPY": [case for case in cases if case.level != 2],
        "scalers:PADDLE_GRAD_SCALER": [case for case in cases if case.level == 2],
    }
    for name, cases in asked.items():
        with CommandAdapter([*SERVE, f"ampscale_conformance.adapters.ampscale.{name}"], 60.0, record=file) as adapter:
            check(adapter, cases=cases)
            adapter.reset()
        talks += lines(file)
    return talks


def test_what_is_really_said_is_as_the_schema_says(recorded):
    """Each request and each reply of the suite's runs, over all calls but one; of those that differ in hex digits alone, one."""
    assert {request["call"] for request, _ in recorded} == {*METHODS, *OWN} - {"compiled"}
    texts = {text for text in map(json.dumps, recorded) if len(text) < LONG}
    distinct = {re.sub(r'"[0-9a-f]+"|\d', "", text): json.loads(text) for text in texts}.values()
    assert len(distinct) > 50
    for request, reply in distinct:
        assert holds(request, f"{request['call']}.request"), request
        assert holds(reply, f"{request['call']}.reply"), reply


ARRAY = {"dtype": "float16", "shape": [1], "bits": ["3c00"]}
FLOAT = "3ff0000000000000"
OUTPUTS = {"parameters": [ARRAY], "finite": True, "scale": FLOAT, "next_scale": FLOAT}
WRONG_PRESETS = ({"init_scale": 1.5}, {"speed": FLOAT}, {"growth_interval": 0})
WRONG_IMPLEMENTATIONS = (
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
    *({"protocol": 1, "implementation": {"name": "x", "preset": preset}} for preset in WRONG_PRESETS),
    *({"protocol": 1, "implementation": said} for said in WRONG_IMPLEMENTATIONS),
    *({"protocol": protocol, "implementation": {"name": "x"}} for protocol in (2, True)),
    {"protocol": 1, "implementation": {"name": "x"}, "more": 1},
]
OTHERS = [
    *({"unsupported": "no"}, {"absent": ""}, {"raised": {"type": "E", "message": ""}}, {"unsupported": None}, {"absent": 1}),
    *({"raised": said} for said in ("E", {"type": "E"}, {"type": "E", "message": "", "line": 3}, {"type": 1, "message": ""})),
    *({"result": None, "absent": ""}, {"error": "x"}, {}),
]


# What the code leaves to the case: it tells in its own words that a step's output is missing, or is of another form.
def lenient(call, reply):
    result = reply.get("result")
    if call != "train_step" or not isinstance(result, dict):
        return False
    return not set(OUTPUTS) <= set(result) or not isinstance(result["parameters"], list) or type(result["finite"]) is int


@pytest.mark.parametrize("call", [*METHODS, *OWN])
def test_the_schema_takes_what_the_code_takes(call):
    """Of results of all kinds, right and wrong, and of every other outcome."""
    replies = [{"id": 1, "result": result} for result in RESULTS] + [{"id": 1, **other} for other in OTHERS]
    replies = [reply for reply in replies if not lenient(call, reply)]
    taken = [reply for reply in replies if reads(call, reply)]
    assert [reply for reply in replies if holds(reply, f"{call}.reply")] == taken
    assert 0 < len(taken) < len(replies)
    assert all(holds(reply, "reply") for reply in taken)
    assert not any(holds({**taken[0], "id": wrong}, f"{call}.reply") for wrong in (0, "1", None, 1.5))


# --- the page ---


def test_the_page_has_every_call():
    """With the arguments, and the level or capability from which on it is there."""
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|([^|\n]*)\|([^|\n]*)\|([^|\n]*)\|$", PAGE, re.MULTILINE)
    rows = [[cell.strip() for cell in row] for row in rows]
    told = {call: row for row in rows for call in re.findall(r"`(\w+)`", row[0])}
    assert set(told) == {*METHODS, *OWN}
    for call, method in METHODS.items():
        _, arguments, result, since = told[call]
        assert tuple(re.sub(r" \(.*?\)", "", arguments).split(", ")) == (method.takes or ("",))
        assert since == (f"level {method.needs}" if isinstance(method.needs, int) else method.needs)
        kind = {"number": "float", "nothing": "null", "answer": "null; with `applied`", "flag": "true or false"}
        kind |= {"handle and tree": "a list of the handle and the tree"}
        assert result.startswith(kind.get(method.gives, method.gives))


def test_the_page_has_every_limit():
    """In numbers."""
    assert f"within {SECONDS:g} seconds" in PAGE
    assert f"the reply to `hello` within {START_SECONDS:g}." in PAGE
    assert (LONGEST, _STARTS, _BYE_SECONDS) == (2**22, 3, 2)
    assert (DEEPEST, LONGEST_NUMBER) == (100, 1100)
    assert "2**22 bytes, 100 nested lists and objects, and 1100 digits" in PAGE
    assert "three failed starts in a row" in PAGE


def dialogue():
    block = PAGE.rpartition("## A dialogue")[2].split("```")[1]
    said = [(line[0], line[2:]) for line in block.strip().splitlines()]
    assert [way for way, _ in said] == ["→", "←"] * (len(said) // 2)
    texts = [text for _, text in said]
    return list(zip(texts[::2], texts[1::2], strict=True))


def test_the_dialogue_is_what_is_said():
    """The example answers every request of it so, to the letter; it shows every outcome but one, and what level 0 needs."""
    calls = plain.Calls()
    for at, (asked, answered) in enumerate(dialogue(), start=1):
        request = json.loads(asked)
        assert json.dumps(plain.reply_to(request, calls)) == answered
        assert request["id"] == at
        assert holds(request, "request")
        assert holds(request, f"{request['call']}.request")
        assert holds(json.loads(answered), f"{request['call']}.reply")
    outcomes = {outcome for _, reply in dialogue() for outcome in json.loads(reply) if outcome != "id"}
    assert outcomes == set(OUTCOMES) - {"unsupported"}
    shown = [json.loads(request)["call"] for request, _ in dialogue()]
    assert {call for call, method in METHODS.items() if method.needs in (0, "resume")} < set(shown)
    assert (shown[0], shown[-1]) == ("hello", "bye")


def test_a_level_0_client_needs_six_calls():
    """No case of level 0 asks for another, unless a capability is claimed."""
    for case in every_case():
        assert case.level or case.needs <= {"resume", "rounding"}
    said = re.search(r"a level 0 client needs\n?\s*((?:`\w+`(?:, | and )?)+)", PAGE)
    zero = {call for call, method in METHODS.items() if method.needs == 0}
    assert set(re.findall(r"\w+", said[1].replace(" and ", " "))) == {*OWN, *zero}
