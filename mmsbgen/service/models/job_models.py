"""Models of the API: jobs and their results."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, StringConstraints, create_model

from mmsbgen.base.declared_options import options_of
from mmsbgen.db.records.job_records import Job
from mmsbgen.sampler.options.options import Options
from mmsbgen.sampler.saved.result_options import ResultOptions
from mmsbgen.service.models.kernel_models import Name, Text, fields_of
from mmsbgen.tuner.run.tune_options import TuneOptions

JobId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
RequestKey = Annotated[str, StringConstraints(pattern=r"^[!-~]{1,200}$")]
Kind = Literal["tune", "detect"]
State = Literal["queued", "running", "done", "failed", "cancelled"]
Value = StrictBool | StrictInt | Annotated[StrictStr, StringConstraints(max_length=64)]
_Word = Annotated[StrictStr, StringConstraints(pattern=r"^[a-z_]{1,64}$")]


def _model(declaration: type[Any], *, body: bool, **most: float) -> Any:
    """A pydantic model of the options for everybody and advanced users.

    Args:
        declaration: The dataclass of options.
        body: Whether values come from a JSON body: strict types and the declared defaults. Values of a query are
            converted, and None by default.
        most: The largest value of an option, by name.
    """
    found: dict[str, Any] = {}
    for name, one in options_of(declaration).items():
        if one.audience in ("everybody", "advanced"):
            bounds = {"ge": one.least, "le": min(one.most, most.get(name, one.most)), "gt": one.above, "lt": one.below}
            hint: Any = {int: int, bool: bool, float: float, str: _Word}[one.kind]
            hint = Literal.__getitem__(tuple(one.choices)) if one.choices else hint
            limits = Field(**{word: one.kind(bound) for word, bound in bounds.items() if math.isfinite(bound)})
            default = one.default if body else None
            hint = Annotated[hint, limits] | None if default is None else Annotated[hint, limits]
            found[name] = (hint, Field(default, description=one.help))
    config = ConfigDict(extra="forbid", strict=body, allow_inf_nan=False)
    return create_model(declaration.__name__, __config__=config, **found)


class TuneRequest(_model(TuneOptions, body=True, budget_trials=100_000, budget_seconds=7 * 86400)):  # type: ignore[misc]
    """A tuning run for a worker, as ``mmsbgen tune`` makes it."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"kernels": ["update_pi"], "problem": {"K": 64}, "budget_trials": 20}]}
    )

    device: Text | None = Field(default=None, description="A part of the name of the device that is to be tuned.")
    family: Text = Field(default="mmsb", description="The family of kernels; registered, and never a file.")
    kernels: list[Name] | None = Field(default=None, max_length=64, description="Those worth tuning, by default.")
    problem: dict[Name, Value] = Field(default_factory=dict, max_length=32, description="Sizes and types by name.")
    fixed: dict[Name, Annotated[list[Value], Field(min_length=1, max_length=64)]] = Field(
        default_factory=dict, max_length=32, description="Axes that keep some of their values."
    )


class DetectOptions(_model(Options, body=False), _model(ResultOptions, body=False, top=256)):  # type: ignore[misc]
    """Options of a detection; options that are left out are chosen for the graph."""

    n_communities: Annotated[int, Field(ge=1, le=2**24)] | Literal["auto"] = Field(
        default="auto", description="K, or 'auto' to let held-out pairs choose.", examples=[50]
    )
    name: Text | None = Field(default=None, description="Of the graph, for records.", examples=["CA-GrQc"])
    columns: Text | None = Field(
        default=None, description="Of a table, A,B or A,B,W: a link's two ends, and its weight.", examples=["1,2"]
    )
    weights: Text | None = Field(default=None, description="'ignore', or 'threshold=X' for links of weight X or more.")
    device: Text | None = Field(default=None, description="A part of the name of the device that is to do it.")


class FileModel(BaseModel):
    """A file of a job."""

    bytes: int
    sha256: str


class JobModel(fields_of(Job, "request_key", "max_losses", "lease_until", "cancel_at", "checkpoint")):  # type: ignore[misc]
    """A job in its current state."""

    id: str = Field(examples=["5b0e3cb0f0f84e3d8d3ff0e5a7d0c6b1"])
    kind: Kind
    state: State
    cancelling: bool = Field(description="Whether it runs and was asked to end.")
    inputs: dict[str, FileModel]
    outputs: dict[str, FileModel] = Field(description="Files of the result, by name.")


class Submitted(BaseModel):
    """A job that waits for a worker."""

    id: str = Field(examples=["5b0e3cb0f0f84e3d8d3ff0e5a7d0c6b1"])
    job: str = Field(description="Where it is.", examples=["/api/v1/jobs/5b0e3cb0f0f84e3d8d3ff0e5a7d0c6b1"])
    events: str = Field(description="Where it is followed.")


class SubmittedDetection(Submitted):
    """A detection that waits for a worker, with the size of its graph and warnings about it."""

    vertices: int
    links: int
    warnings: list[str] = Field(description="What in the graph probably means something else than it was taken for.")


class JobPage(BaseModel):
    """Jobs, newest first."""

    jobs: list[JobModel]
    next: str | None = Field(description="What to give as 'before' for the page after; null where this is the last.")
    counts: dict[State, int] = Field(description="How many jobs there are in each state, of all kinds.")


class Community(BaseModel):
    """A community of a detection."""

    number: int = Field(description="0 for the largest.")
    size: int
    strength: float = Field(description="Its strength beta in the model, which is no calibrated probability.")
    background: bool = Field(description="Whether its members link no more often than any two vertices do.")


class VerdictModel(BaseModel):
    """Whether communities were found."""

    kind: Literal["found", "weak", "degrees", "none", "unknown"]
    sentence: str = Field(description="The verdict for people.")


class DetectionResult(BaseModel):
    """The result of a detection, without the members."""

    vertices: int
    links: int
    n_communities: int = Field(description="K of the model.")
    coverage: float = Field(description="Share of the vertices that are in a community.")
    overlap: float = Field(description="Communities of a covered vertex, in the mean.")
    communities: list[Community] = Field(description="The largest first, at most 1000 of them.")
    count: int = Field(description="Number of communities found.")
    shared: list[tuple[int, int, int]] = Field(
        description="Pairs of the largest communities that share members, and how many: [number, number, vertices]."
    )
    trace: list[dict[str, Any]] = Field(description="One entry an evaluation.")
    held_out: dict[str, Any]
    verdict: VerdictModel
    convergence: dict[str, Any]
    stage_seconds: dict[str, float]
    device: str


class Member(BaseModel):
    """A vertex of a community."""

    id: str = Field(description="As the graph has it.")
    share: float = Field(description="Its share of the community, of 1 over all of its communities.")


class MemberPage(BaseModel):
    """Members of a community, in the graph's order."""

    number: int
    size: int
    members: list[Member]
    next: int | None = Field(description="The offset of the page after; null where this is the last.")


class Vertex(BaseModel):
    """The memberships of a vertex."""

    id: str
    memberships: list[tuple[int, float]] = Field(
        description="[number of the community, share], the largest first. Shares sum to 1."
    )
