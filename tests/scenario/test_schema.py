import json

import pytest

from fedsim.scenario.schema import json_schema

pytestmark = pytest.mark.usefixtures("catalog")


def test_every_reference_of_the_schema_leads_somewhere() -> None:
    schema = json_schema()
    text = json.dumps(schema)
    references = {part.split('"')[0] for part in text.split('"$ref": "')[1:]}
    assert references
    for reference in references:
        assert reference.removeprefix("#/$defs/") in schema["$defs"]


def test_the_schema_holds_the_parameters_of_parts() -> None:
    definitions = json_schema()["$defs"]
    dirichlet = definitions["partition.dirichlet"]
    assert dirichlet["properties"]["name"]["const"] == "dirichlet"
    assert dirichlet["properties"]["alpha"]["exclusiveMinimum"] == 0
    assert "lambda" in dirichlet["properties"]
    assert dirichlet["additionalProperties"] is False
    assert dirichlet["required"] == ["name"]
    assert definitions["partition.shards"]["required"] == ["name", "size"]


def test_places_of_parts_offer_all_of_their_kind() -> None:
    definitions = json_schema()["$defs"]
    partition = definitions["task.supervised"]["properties"]["partition"]
    assert [option["$ref"].rpartition("/")[2] for option in partition["anyOf"][:-2]] == [
        "partition.dirichlet",
        "partition.iid",
        "partition.shards",
        "partition.own",
    ]
    assert partition["anyOf"][-2]["enum"] == ["dirichlet", "iid", "shards"]
    assert "x-fedsim-kind" not in json.dumps(definitions)
