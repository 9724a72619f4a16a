"""Everything that the bridge takes from Flower. No other module of the package imports ``flwr``.

Flower's public interface is imported from ``flwr.app``, ``flwr.clientapp`` and ``flwr.serverapp``. The other names
are not part of it, so that a version of Flower is supported only if the tests pass with it.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from fedsim.errors import UserError, nearest_or_all, refused

# Read by Flower when it is imported.
os.environ["FLWR_TELEMETRY_ENABLED"] = "0"

SUPPORTED = ("1.41",)
"""Versions of Flower that the bridge is tested with."""
TIMING = "fedsim.timing"
"""The record of a reply with the seconds for which its ClientApp worked."""
NUMBER = "partition-id"
"""The entry of a node's configuration that is the number of its client."""

try:
    from flwr.app import (
        Array,
        ArrayRecord,
        ConfigRecord,
        Context,
        Message,
        MetricRecord,
        RecordDict,
    )
    from flwr.app.error import Error
    from flwr.app.message import message as message_module
    from flwr.clientapp import ClientApp
    from flwr.common.config import get_fused_config_from_dir, get_project_config, parse_config_args
    from flwr.common.constant import SUPERLINK_NODE_ID, ErrorCode
    from flwr.common.secure_aggregation.secaggplus_constants import (
        RECORD_KEY_CONFIGS as SECURE_CONFIGS,
    )
    from flwr.common.secure_aggregation.secaggplus_constants import Key as SecureKey
    from flwr.common.secure_aggregation.secaggplus_constants import Stage as SecureStage
    from flwr.common.serde import message_from_proto, recorddict_from_proto, recorddict_to_proto
    from flwr.common.serde_utils import error_to_proto, metadata_to_proto
    from flwr.proto.message_pb2 import Message as MessageProto
    from flwr.proto.node_pb2 import NodeInfo
    from flwr.proto.recorddict_pb2 import RecordDict as RecordDictProto
    from flwr.server import server as server_module
    from flwr.server.client_manager import SimpleClientManager
    from flwr.server.history import History
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.server_app import LoadServerAppError
    from flwr.serverapp.strategy.result import Result
    from flwr.supercore.logger import FLOWER_LOGGER
    from flwr.supercore.object_ref import load_app
    from flwr.supercore.run import Run
    from flwr.supercore.task_identity import TaskIdentity
except ImportError as error:
    try:
        VERSION = importlib.metadata.version("flwr")
    except importlib.metadata.PackageNotFoundError:
        problem = "Flower is not installed"
    else:
        problem = f"Flower {VERSION} lacks a name that the bridge needs ({error})"
    raise UserError(
        problem,
        where="fedsim flower",
        hint='install a supported version: pip install "fedsim-des[flower]"',
    ) from error

VERSION = importlib.metadata.version("flwr")
if VERSION.rpartition(".")[0] not in SUPPORTED:
    warnings.warn(
        f"fedsim has not been tested with Flower {VERSION}, only with "
        f"{', '.join(SUPPORTED)}; if something fails, install a tested version",
        stacklevel=2,
    )


def message_unavailable(message_id: str, run_id: int) -> Message:
    """The reply to a message that is not there."""
    # Takes a second to import, which no ClientApp needs.
    from flwr.server.superlink.linkstate import utils

    return utils.create_message_error_unavailable_ins_message(message_id, run_id)


def node_unavailable(metadata: Any) -> Message:
    """The reply to a message whose node is gone."""
    from flwr.server.superlink.linkstate import utils

    return utils.create_message_error_unavailable_res_message(metadata, "node_unavail")


def identity(run_id: int, node_id: int) -> AbstractContextManager[Any]:
    """Set the sender of the messages that are made while the context lasts."""
    patch: AbstractContextManager[Any] = mock.patch.multiple(
        TaskIdentity, _task_id=1, _run_id=run_id, _node_id=node_id
    )
    return patch


@contextmanager
def messages_made_at(moment: datetime.datetime) -> Iterator[None]:
    """Let messages that are made while the context lasts carry ``moment``."""
    before = message_module.now
    message_module.now = lambda: moment
    try:
        yield
    finally:
        message_module.now = before


def secure_stage(message: Message) -> str | None:
    """The stage of secure aggregation that a message belongs to; None if it belongs to none."""
    config = message.content.config_records.get(SECURE_CONFIGS)
    return None if config is None else str(config[SecureKey.STAGE])


def trains(message: Message) -> bool:
    """Whether a message is a training message; of the stages of secure aggregation, only one trains."""
    if message.metadata.message_type.partition(".")[0] != "train":
        return False
    return secure_stage(message) in (None, SecureStage.COLLECT_MASKED_VECTORS)


def project_config(folder: Path) -> dict[str, Any]:
    """The ``pyproject.toml`` of an app."""
    if not folder.is_dir():
        raise UserError(
            "no such folder",
            where=folder,
            hint="give the folder of a Flower app; `fedsim init digits --template flower` writes one",
        )
    hint = "give the folder with the app's pyproject.toml, which has a section [tool.flwr.app]"
    with refused("not a Flower app", folder, hint, Exception):
        config: dict[str, Any] = get_project_config(folder)
    return config


def app_config(folder: Path, overrides: str) -> dict[str, Any]:
    """The run configuration of an app, with overrides such as ``"num-server-rounds=5 learning-rate=0.1"``."""
    defaults: dict[str, Any] = get_fused_config_from_dir(folder, {})
    hint = f"keys of this app: {', '.join(defaults) or 'none'}; write key=value, with quotes around text"
    if not overrides.endswith(".toml"):
        # Flower ignores words that are not of the form key=value.
        for word in _OVERRIDE.sub(" ", overrides).split():
            raise UserError(f"'{word}' is not key=value", where="--run-config", hint=hint)
    with refused("not a configuration", "--run-config", hint, Exception):
        given = parse_config_args([overrides]) if overrides else {}
    for key in given:
        if key not in defaults:
            message = f"the app has no key '{key}'"
            near = nearest_or_all(key, defaults, hint)
            raise UserError(message, where="--run-config", hint=near)
    return defaults | given


_OVERRIDE = re.compile(r"""\S+?=('[^']*'|"[^"]*"|\S+)""")
"""A key with its value, as :func:`parse_config_args` finds them."""
