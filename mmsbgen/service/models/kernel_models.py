"""Models of the API: the tuning database and the kernels."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, create_model

from mmsbgen.backends.base import DeviceInfo
from mmsbgen.db.records.tuning_records import TRIAL_STATUSES, DeviceRecord, TrialRecord
from mmsbgen.db.store.paging import CURSOR

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,63}$")]
"""Name of a family, a kernel, an axis or a parameter."""
KernelPath = Annotated[str, StringConstraints(pattern=r"^([A-Za-z][A-Za-z0-9_]{0,63}/)?[A-Za-z][A-Za-z0-9_]{0,63}$")]
"""A kernel as NAME or FAMILY/NAME."""
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
Text = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
Pair = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,63}=[^\x00-\x1f\x7f]{1,64}$")]
"""NAME=VALUE."""
Cursor = Annotated[str, StringConstraints(pattern=CURSOR)]
Status = Literal["ok", "invalid", "compile_error", "launch_error", "wrong_result", "timeout", "crashed"]
assert set(TRIAL_STATUSES) == set(Status.__args__)  # type: ignore[attr-defined]

_DEVICE = "opencl: Intel(R) Xeon(R) Processor (Intel(R) OpenCL)"
_KEY = "0f343b0931126a20f133d67c2b018a3b"
_CONFIG = {"placement": "RRS", "vector_width": 4, "block_size": 64}
_PROBLEM = {"K": 1024, "m": 4096, "n": 32, "dtype": "float32"}


def fields_of(record: type[Any], *leave_out: str) -> Any:
    """A model with the fields of a record, which models of answers extend."""
    found: dict[str, Any] = {
        name: (hint, ...) for name, hint in get_type_hints(record).items() if name not in leave_out
    }
    return create_model(record.__name__, **found)


def values_of(record: Any, model: type[BaseModel]) -> dict[str, Any]:
    """The attributes of a record that a model has."""
    return {name: getattr(record, name) for name in model.model_fields if hasattr(record, name)}


class LocalDevice(fields_of(DeviceInfo)):  # type: ignore[misc]
    """A device of the machine that runs the service; sizes are bytes."""

    spec: str = Field(description="How --device names it.", examples=["opencl:0"])
    key: str = Field(description="Its key in the database.", examples=[_KEY])


class KnownDevice(fields_of(DeviceRecord, "extra")):  # type: ignore[misc]
    """A device that has records; sizes are bytes, rates GB/s."""

    key: str = Field(examples=[_KEY])
    label: str = Field(examples=[_DEVICE])
    trials: int = Field(description="In the database.")
    shipped: bool = Field(description="Whether records of it come with the package.")
    local: bool = Field(description="Whether it is a device of this machine, with this driver.")
    copy_gbps: float | None = Field(description="Newest measured rate of a copy.")
    gather_gbps: dict[str, float] = Field(description="Newest measured rates of gathers, by bytes of a row.")


class DeviceList(BaseModel):
    """Devices, with hints for making more available."""

    local: list[LocalDevice] = Field(description="Of this machine, the best first.")
    known: list[KnownDevice] = Field(description="With records, by label.")
    hints: list[str] = Field(description="What is missing, and how to get it.")


class Best(BaseModel):
    """The best known configuration of a kernel for a device and a problem."""

    device: str = Field(examples=[_DEVICE])
    device_key: str = Field(examples=[_KEY])
    local: bool
    family: str = Field(examples=["mmsb"])
    kernel: str = Field(examples=["update_phi"])
    problem: dict[str, Any] = Field(description="What of the problem the kernel depends on.", examples=[_PROBLEM])
    configuration: dict[str, Any] = Field(examples=[_CONFIG])
    tier: Literal["exact", "problem", "architecture", "vendor", "default"]
    reason: str = Field(description="Why this tier and not a better one.")
    expected_s: float | None = Field(description="Median seconds of the trial on its own device and problem.")
    trial: str | None = Field(description="The trial that it comes from.")
    template_digest: str = Field(description="Of the tokens of the configuration's program.")


class AxisModel(BaseModel):
    """One tunable axis of a kernel."""

    name: str = Field(examples=["vector_width"])
    values: list[int | str | bool] = Field(description="The simplest first.", examples=[[1, 2, 4, 8, 16]])
    doc: str
    mode: bool = Field(description="Whether it says what the kernel does rather than how fast.")


class ArgumentModel(BaseModel):
    """One argument of a kernel."""

    model_config = ConfigDict(from_attributes=True)

    name: str
    ctype: str
    role: str
    doc: str


class ParameterModel(BaseModel):
    """One size or type of a problem."""

    name: str = Field(examples=["K"])
    default: int | str | bool
    doc: str
    minimum: int | None
    maximum: int | None
    choices: list[str]


class KernelModel(BaseModel):
    """A kernel and its search space."""

    family: str
    name: str = Field(examples=["update_phi"])
    doc: str
    dialects: list[str]
    parameters: list[str] = Field(description="What of a problem its source and time depend on.")
    axes: list[AxisModel]
    constraints: list[str] = Field(description="Names of the rules that refuse configurations.")
    arguments: list[ArgumentModel]
    worth_tuning: bool


class KernelList(BaseModel):
    """The kernels of a family, and the parameters of its problems."""

    family: str
    families: list[str] = Field(description="All there are.")
    doc: str
    parameters: list[ParameterModel]
    kernels: list[KernelModel]


class SourceModel(BaseModel):
    """The source of a kernel."""

    kernel: str
    dialect: Literal["cuda", "opencl"]
    problem: dict[str, Any] = Field(examples=[_PROBLEM])
    configuration: dict[str, Any] = Field(examples=[_CONFIG])
    filled: list[str] = Field(description="Axes that were not asked for.")
    selected: str = Field(description="Why these values were filled in.")
    template_digest: str
    text: str = Field(description="The source.")


class TrialModel(fields_of(TrialRecord, "key", "config")):  # type: ignore[misc]
    """One measurement of a configuration; times are seconds."""

    trial: str
    status: Status
    device: str = Field(examples=[_DEVICE])
    device_key: str
    compiler: str
    family: str
    kernel: str
    template_digest: str
    stale: bool = Field(description="Whether the program has changed since.")
    problem: dict[str, Any] = Field(examples=[_PROBLEM])
    configuration: dict[str, Any] = Field(examples=[_CONFIG])
    median_s: float | None
    spread_s: float | None
    gbps: float | None
    roof_fraction: float | None


class TrialPage(BaseModel):
    """Trials, newest first."""

    trials: list[TrialModel]
    next: str | None = Field(description="What to give as cursor for the page after; null where this is the last.")


class Added(BaseModel):
    """How many records an upload added; existing records are not added again."""

    runs: int
    roofs: int
    trials: int = Field(examples=[77])
    quarantined: int
    of_trials: int = Field(description="How many trials the upload has.", examples=[80])


class Ready(BaseModel):
    """Whether the service is ready: its database works, and one of its workers lives if it has any."""

    status: Literal["ready", "not ready"]
    database: str = Field(description="'ok', or what is wrong with it.")
    schema_revision: str | None
    workers: int = Field(description="How many job workers beside the service live.", examples=[1])
    workers_wanted: int = Field(description="How many there should be, as --workers says.", examples=[1])
    version: str


class Health(BaseModel):
    """Answer of a live process."""

    status: Literal["ok"]
    version: str
