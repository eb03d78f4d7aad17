"""``approvals``, ``approve`` and ``reject``."""

from __future__ import annotations

import json
import re
import shlex
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Invoke
from tests.cli.documents import HELLO, write

REFUND = """\
name: refund
nodes:
  - id: gate
    type: approval
    parameters:
      message: "Refund {{ $trigger.amount }} EUR?"
      approvers: [ann, bo]
      timeout: 2d
      form: {type: object, required: [amount], properties: {amount: {type: number, maximum: 100}}}
"""
TWO_GATES = """\
name: two-gates
nodes:
  - {id: law, type: approval, parameters: {message: lawful?}}
  - {id: money, type: approval, parameters: {message: affordable?}}
"""
EACH = """\
name: each-one
nodes:
  - {id: each, type: split, parameters: {input_array: $trigger.names}}
  - {id: gate, type: approval, parameters: {message: "hire {{ $item }}?"}}
  - {id: all, type: aggregator}
edges:
  - {src: each, dst: gate}
  - {src: gate, dst: all}
"""


def asking(invoke: Invoke, file: str, payload: str = "null") -> str:
    """An execution that was left at its question."""
    told = json.loads(invoke("run", file, "--input", payload, "--timeout", "1s", "--json").stdout)
    assert told["status"] == "RUNNING", told
    return str(told["execution_id"])


def listed(invoke: Invoke, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(invoke("approvals", *arguments, "--json").stdout)["approvals"]
    return found


@pytest.fixture
def refund(invoke: Invoke, folder: Path) -> str:
    write(folder, refund_yaml=REFUND)
    return asking(invoke, "refund.yaml", '{"amount": 80}')


def test_open_approvals_are_listed_with_the_command_that_decides(invoke: Invoke, refund: str) -> None:
    [told] = listed(invoke)
    assert (told["execution_id"], told["workflow"], told["node"]) == (refund, "refund", "gate")
    assert (told["message"], told["approvers"]) == ("Refund 80 EUR?", ["ann", "bo"])
    assert told["due"] > told["since"]
    assert told["command"] == f"dalsegno approve {refund} gate"
    said = invoke("approvals").stdout
    assert "◔ Refund 80 EUR?" in said
    assert "node 'gate'; asked " in said
    assert "gives up in 47 h" in said
    assert "takes --data with amount" in said
    assert f"\n  dalsegno approve {refund} gate\n" in said
    assert listed(invoke, refund) == [told]
    assert listed(invoke, "--workflow", "other") == []


def test_list_says_so_if_nobody_is_asked(invoke: Invoke, folder: Path) -> None:
    write(folder, hello_yaml=HELLO)
    invoke("run", "hello.yaml")
    assert invoke("approvals").stdout == "no decision is open\n"


def test_limit_tells_that_there_are_more(invoke: Invoke, folder: Path) -> None:
    write(folder, two_gates_yaml=TWO_GATES)
    asking(invoke, "two_gates.yaml")
    assert "the first 1; --limit shows more" in invoke("approvals", "--limit", "1").stdout
    assert "--limit" not in invoke("approvals").stdout


def test_approved_execution_goes_on_with_the_data(invoke: Invoke, refund: str) -> None:
    done = invoke("approve", refund, "--data", '{"amount": 80}', "--by", "ann", "--comment", "fine")
    assert (done.exit_code, done.stdout) == (0, f"approved 'gate' of {refund}\n")
    assert listed(invoke) == []
    ended = json.loads(invoke("resume", refund, "--json").stdout)
    assert ended["output"] == {
        "decision": "approved",
        "data": {"amount": 80},
        "by": "ann",
        "comment": "fine",
    }


def test_rejection_needs_no_data_and_is_a_result(invoke: Invoke, refund: str) -> None:
    told = json.loads(invoke("reject", refund, "gate", "--json").stdout)
    assert told == {"execution": refund, "execution_id": refund, "node": "gate", "decision": "rejected"}
    ended = json.loads(invoke("resume", refund, "--json").stdout)
    assert (ended["status"], ended["output"]["decision"]) == ("COMPLETED", "rejected")


def test_rejection_with_a_comment_needs_no_form(invoke: Invoke, refund: str) -> None:
    """The form of this question has a required field."""
    done = invoke("reject", refund, "--comment", "too much", "--by", "bo")
    assert (done.exit_code, done.stderr) == (0, "")
    ended = json.loads(invoke("resume", refund, "--json").stdout)
    assert ended["output"] == {"decision": "rejected", "data": None, "by": "bo", "comment": "too much"}
    assert "too much" in invoke("show", refund).stdout


def test_what_does_not_fit_is_refused_and_changes_nothing(invoke: Invoke, refund: str) -> None:
    for arguments, said in (
        (["--data", '{"amount": 500}'], "/data/amount: 500 is greater than the maximum of 100"),
        (["--data", "7", "--comment", "hm"], "/data: 7 is not of type 'object'"),
        (["nowhere"], "open approvals of this execution: 'gate'"),
    ):
        refused = invoke("approve", refund, *arguments)
        assert refused.exit_code == 2
        assert said in refused.stderr
    assert len(listed(invoke)) == 1


def test_approval_without_data_names_the_fields_and_the_command(invoke: Invoke, folder: Path) -> None:
    fields = "{amount: {type: integer}, day: {type: string, enum: [mon, tue]}, note: {type: string}}"
    form = f"form: {{type: object, required: [amount, day], properties: {fields}}}"
    write(
        folder,
        pay_yaml=f"name: pay\nnodes:\n  - {{id: gate, type: approval, parameters: {{message: 'Pay?', {form}}}}}\n",
    )
    execution = asking(invoke, "pay.yaml")
    for words in ((), ("gate",), ("gate", "--data", '{"amount": 3}')):
        refused = invoke("approve", execution, *words)
        assert refused.exit_code == 2
        assert "/data: 'day' is a required property" in refused.stderr
        assert (
            "Fields of the form: amount (integer, required), day (string, required), note (string, optional)"
            in (refused.stderr)
        )
        command = f"""dalsegno approve {execution} gate --data '{{"amount": 1, "day": "mon"}}'"""
        assert f"Give them with --data: {command}\n" in refused.stderr
    assert "the decision has no data, and its form needs some" in invoke("approve", execution).stderr
    assert invoke(*shlex.split(command)[1:]).exit_code == 0


TIMELY = """\
from dalsegno import App, approval

app = App()


@app.task
async def charge(cents: int) -> int:
    return cents


@app.workflow
async def pay(cents: int = 3):
    await charge(cents)
    return await approval("Pay it?", timeout="1s")


@app.workflow
async def ask():
    return await approval("Pay it?", timeout="1s")
"""


def resumed_late(invoke: Invoke, *run: str) -> tuple[str, str]:
    """Leave it at its question, and resume it two seconds after the question's timeout: outputs of resume and show."""
    assert invoke("run", *run, "--timeout", "300ms").exit_code == 124
    time.sleep(3.0)  # nothing runs: there is nothing to wait for but the clock
    app = ("--app", "pay.py") if run[0].startswith("pay.py") else ()
    return invoke("resume", "last", *app).output, invoke("show", "last").stdout


def test_timed_out_approval_of_a_program_is_named_and_counted_as_one(invoke: Invoke, folder: Path) -> None:
    write(folder, pay_py=TIMELY)
    resumed, shown = resumed_late(invoke, "pay.py:pay")
    assert "1 task and 1 approval in " in resumed
    assert "approval failed: no decision was made within 1s: Pay it?" in resumed
    assert re.search(r"^  ✗ approval +failed +1\.0 s$", shown, re.MULTILINE), shown
    assert "node:" not in resumed + shown
    assert "  1 approval in " in resumed_late(invoke, "pay.py:ask")[0]


def test_timed_out_approval_of_a_graph_is_named_and_timed(invoke: Invoke, folder: Path) -> None:
    write(
        folder,
        gate_yaml="name: gate\nnodes:\n  - {id: gate, type: approval, parameters: {message: 'Pay?', timeout: 1s}}\n",
    )
    resumed, shown = resumed_late(invoke, "gate.yaml")
    assert "node 'gate' gave up after 1s without a decision: Pay?" in resumed
    assert re.search(r"^└─ ✗ gate +failed +1\.0 s$", shown, re.MULTILINE), shown
    assert "approval:gate" not in resumed + shown


def test_whoever_decides_second_is_told(invoke: Invoke, refund: str) -> None:
    invoke("reject", refund)
    for arguments in ([refund], [refund, "gate"]):
        late = invoke("approve", *arguments)
        assert late.exit_code == 2
        assert "is not waiting for a decision" in late.stderr
        assert "`dalsegno approvals` lists the open" in late.stderr
    invoke("resume", refund)
    over = invoke("approve", refund, "gate", "--json")
    assert over.exit_code == 2
    error = json.loads(over.stdout)["error"]
    assert (error["code"], "has ended (COMPLETED)" in error["message"]) == ("DS-160", True)
    assert json.loads(invoke("approve", "ffff", "--json").stdout)["error"]["code"] == "DS-130"


def test_node_is_named_where_several_ask(invoke: Invoke, folder: Path) -> None:
    write(folder, two_gates_yaml=TWO_GATES)
    execution = asking(invoke, "two_gates.yaml")
    unclear = invoke("approve", execution)
    assert unclear.exit_code == 2
    assert "waits for several decisions: at 'law', 'money'" in unclear.stderr
    assert invoke("approve", execution, "law").exit_code == 0
    assert invoke("reject", execution).stdout == f"rejected 'money' of {execution}\n"


def test_item_of_a_split_is_named_by_its_index(invoke: Invoke, folder: Path) -> None:
    write(folder, each_yaml=EACH)
    execution = asking(invoke, "each.yaml", '{"names": ["Ann", "Bo"]}')
    unclear = invoke("approve", execution)
    assert unclear.exit_code == 2
    assert "say which item by index: [0], [1]" in unclear.stderr
    second = next(each for each in listed(invoke) if each["message"] == "hire Bo?")
    assert second["command"] == f"dalsegno approve {execution} gate --index 1"
    assert invoke(*second["command"].split()[1:]).exit_code == 0
    assert [each["message"] for each in listed(invoke)] == ["hire Ann?"]


def test_why_tells_how_to_decide(invoke: Invoke, refund: str) -> None:
    assert f"decide it with `dalsegno approve {refund} gate`" in invoke("why", refund).stdout


# -- scripts, Python workflows, children -----------------------------------------------------------------------

ENROL = (
    'let d = await approval({message: "Enrol Ada?", approvers: ["ann"], timeout: "14d"})\nreturn d.approved\n'
)
PARENT = """\
name: parent
nodes:
  - {id: pay, type: workflow, parameters: {name: refund, input: {amount: 7}}}
"""


def test_a_script_that_asks_is_told_listed_and_decided(invoke: Invoke, folder: Path) -> None:
    (folder / "enrol.flow").write_text(ENROL)
    told = invoke("run", "enrol.flow", "--timeout", "1s")
    [found] = listed(invoke)
    execution = found["execution_id"]
    assert f"decide it: dalsegno approve {execution}" in told.output
    assert (found["node"], found["message"], found["index"]) == ("approval", "Enrol Ada?", [0])
    assert found["command"] == f"dalsegno approve {execution} approval --index 0"
    why = invoke("why", execution).stdout
    assert "it waits for a decision: Enrol Ada?; it gives up in" in why
    assert f"decide it with `dalsegno approve {execution}` or reject" in why
    assert "waits for a decision, gives up in" in invoke("show", execution).stdout
    assert invoke("approve", execution, "--comment", "fine").exit_code == 0
    assert json.loads(invoke("resume", execution, "--json").stdout)["output"] is True


def test_questions_of_a_child_are_found_at_its_parent(invoke: Invoke, folder: Path) -> None:
    write(folder, refund_yaml=REFUND, parent_yaml=PARENT)
    invoke("deploy", "refund.yaml")
    parent = asking(invoke, "parent.yaml")
    [found] = listed(invoke, parent)
    child = found["execution_id"]
    assert (child != parent, found["workflow"], found["message"]) == (True, "refund", "Refund 7 EUR?")
    why = invoke("why", parent).stdout
    assert f"node 'pay' waits for execution {child} to end" in why
    assert f"execution {child} of 'refund': node 'gate' waits for a decision" in why
    waits = json.loads(invoke("why", parent, "--json").stdout)["waits"]
    assert [each["execution"] for each in waits] == [None, child]
    done = invoke("reject", parent, "--by", "bo")
    assert (done.exit_code, done.stdout) == (0, f"rejected 'gate' of {child}\n"), done.output
    assert json.loads(invoke("resume", parent, "--json").stdout)["output"]["by"] == "bo"


def test_execution_that_asks_is_named_where_another_one_was_meant(
    invoke: Invoke, folder: Path, refund: str
) -> None:
    write(folder, hello_yaml=HELLO)
    invoke("run", "hello.yaml")
    refused = invoke("approve", "last")
    assert refused.exit_code != 0
    said = " ".join(refused.stderr.split())
    assert f"is not waiting for a decision; these are: {refund} ('gate' of refund)" in said
