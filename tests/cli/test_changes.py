"""What is different between two versions: graphs by their parts, texts by their lines."""

from __future__ import annotations

import json
from time import process_time
from typing import Any

from dalsegno.engine.operations.diff import (
    FieldChange,
    GraphChanges,
    PartChange,
    TextChanges,
    compare,
    compare_graphs,
    compare_texts,
    source_text,
)
from dalsegno.lang import compile as compile_script
from dalsegno.lang.python import compile_workflow
from dalsegno.model.definition import Definition


def node(name: str, type: str = "log", **fields: Any) -> dict[str, Any]:
    return {"id": name, "type": type, **fields}


def edge(name: str, src: str, dst: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, "src": src, "dst": dst, **fields}


def graph(*nodes: dict[str, Any], edges: tuple[dict[str, Any], ...] = (), **fields: Any) -> dict[str, Any]:
    return {"name": "g", **fields, "nodes": list(nodes), "edges": list(edges)}


def changes(before: dict[str, Any], after: dict[str, Any]) -> GraphChanges:
    return compare_graphs(json.dumps(before).encode(), json.dumps(after).encode())


def test_same_graph_has_no_changes() -> None:
    assert not changes(graph(node("a")), graph(node("a")))


def test_nodes_that_came_and_went_are_named_with_their_types() -> None:
    found = changes(graph(node("a"), node("b")), graph(node("a"), node("c", "http")))
    assert found.parts == (
        PartChange("added", "node", "c", "http"),
        PartChange("removed", "node", "b", "log"),
    )


def test_changed_parameter_is_named_by_its_path() -> None:
    before = node("a", "http", parameters={"url": "x", "headers": {"accept": "a", "host": "h"}})
    after = node("a", "http", parameters={"url": "x", "headers": {"accept": "b"}, "method": "POST"})
    (part,) = changes(graph(before), graph(after)).parts
    assert part == PartChange(
        "changed",
        "node",
        "a",
        "http",
        (
            FieldChange("changed", "parameters.headers.accept", "a", "b"),
            FieldChange("removed", "parameters.headers.host", before="h"),
            FieldChange("added", "parameters.method", after="POST"),
        ),
    )


def test_lists_of_one_length_are_compared_item_by_item() -> None:
    before, after = node("a", parameters={"list": [1, 2, 3]}), node("a", parameters={"list": [1, 5, 3]})
    (part,) = changes(graph(before), graph(after)).parts
    assert part.fields == (FieldChange("changed", "parameters.list[1]", 2, 5),)


def test_lists_of_other_lengths_change_as_a_whole() -> None:
    before, after = node("a", parameters={"list": [1, 2]}), node("a", parameters={"list": [2]})
    (part,) = changes(graph(before), graph(after)).parts
    assert part.fields == (FieldChange("changed", "parameters.list", [1, 2], [2]),)


def test_true_is_not_one() -> None:
    before, after = node("a", parameters={"x": 1}), node("a", parameters={"x": True})
    assert changes(graph(before), graph(after))


def test_edges_say_where_they_lead() -> None:
    nodes = (node("a"), node("b"), node("c"))
    before = graph(*nodes, edges=(edge("e1", "a", "b"), edge("e2", "b", "c")))
    after = graph(*nodes, edges=(edge("e1", "a", "c"), edge("e3", "c", "b")))
    assert changes(before, after).parts == (
        PartChange("added", "edge", "e3", "c -> b"),
        PartChange("removed", "edge", "e2", "b -> c"),
        PartChange("changed", "edge", "e1", "a -> c", (FieldChange("changed", "dst", "b", "c"),)),
    )


def test_edges_without_ids_are_known_by_their_ends() -> None:
    plain = {"src": "a", "dst": "b"}
    assert not changes(graph(edges=(plain,)), graph(edges=(plain,)))
    assert changes(graph(edges=(plain,)), graph(edges=({"src": "a", "dst": "c"},))).parts[0].id == "a->c"


def test_fields_of_the_document_are_compared() -> None:
    found = changes(graph(timeout="1h", output="$a"), graph(output="$b", description="new"))
    assert {(each.kind, each.path) for each in found.fields} == {
        ("removed", "timeout"),
        ("changed", "output"),
        ("added", "description"),
    }


def test_order_and_display_are_no_changes() -> None:
    before = graph(node("a", position={"x": 1}), node("b"))
    assert not changes(before, graph(node("b"), node("a", position={"x": 2})))


def test_nodes_inside_a_dag_are_compared() -> None:
    before = {"name": "g", "dag": {"nodes": [node("a")]}}
    after = {"name": "g", "dag": {"nodes": [node("a"), node("b", dependencies=["a"])]}}
    assert [part.id for part in changes(before, after).parts] == ["b"]


def test_changes_are_data_too() -> None:
    found = changes(graph(node("a", parameters={"x": 1})), graph(node("a", parameters={"x": 2}), node("b")))
    assert found.as_object() == {
        "nodes": [
            {"change": "added", "id": "b", "about": "log"},
            {
                "change": "changed",
                "id": "a",
                "about": "log",
                "fields": [{"change": "changed", "path": "parameters.x", "before": 1, "after": 2}],
            },
        ],
        "edges": [],
        "fields": [],
    }


# -- texts ----------------------------------------------------------------------------------------------------


def test_changed_lines_are_counted_and_shown() -> None:
    found = compare_texts("a\nb\nc\n", "a\nB\nc\nd\n", ("version 1", "version 2"))
    assert (found.added, found.removed) == (2, 1)
    assert found.diff == ("--- version 1", "+++ version 2", "@@ -1,3 +1,4 @@", " a", "-b", "+B", " c", "+d")


def test_same_texts_have_no_changes() -> None:
    assert not compare_texts("a\nb", "a\nb\n")


def test_lines_that_look_like_signs_are_counted_as_lines() -> None:
    found = compare_texts("--- x\n", "+++ y\n")
    assert (found.added, found.removed) == (1, 1)


def test_large_texts_are_compared_in_bounded_time() -> None:
    before = "\n".join(f"{number} {number % 7}" for number in range(30_000))
    after = "\n".join(f"{number} {number % 5}" for number in range(30_000))
    began = process_time()
    found = compare_texts(before, after)
    assert process_time() - began < 10
    assert (found.added, found.removed) == (30_000, 30_000)


def test_small_change_of_a_large_text_is_found() -> None:
    lines = [f"line {number}" for number in range(30_000)]
    found = compare_texts("\n".join(lines), "\n".join([*lines[:15_000], "new", *lines[15_000:]]))
    assert (found.added, found.removed) == (1, 0)


# -- sources --------------------------------------------------------------------------------------------------


async def waiting(days: int) -> int:
    return days + 1


def test_source_of_every_kind_reads_as_it_was_written() -> None:
    script, workflow = compile_script("return 1 + 1\n", "two"), compile_workflow(waiting)
    document = json.dumps(graph(node("a", parameters={"message": "ä"}))).encode()

    assert source_text(Definition("two", 1, "", "script", script.dump())) == "return 1 + 1\n"
    assert "async def waiting(days: int)" in source_text(Definition("w", 1, "", "python", workflow.dump()))
    assert "message: ä" in source_text(Definition("g", 1, "", "graph", document))
    assert source_text(Definition("x", 1, "", "other", b"\xff!")) == "\ufffd!"


def test_versions_of_a_script_are_compared_by_their_lines() -> None:
    before, after = (
        Definition("two", number, "", "script", compile_script(source, "two").dump())
        for number, source in ((1, "return 1\n"), (2, "log(2)\nreturn 2\n"))
    )
    found = compare(before, after)
    assert isinstance(found, TextChanges)
    assert (found.added, found.removed) == (2, 1)
    assert found.diff[:2] == ("--- version 1", "+++ version 2")
