"""Records of the tuning database, as frozen dataclasses.

Times are seconds, sizes bytes, rates GB/s (1e9 bytes a second), timestamps ISO 8601 in UTC.  Records contain strings,
numbers and JSON only.  Their mappings are copied as plain JSON when a record is created, and must not be changed
afterwards.

Constructors raise ``ValueError`` for values that the database refuses (NaN, negative sizes, an unknown
status) and ``TypeError`` for values that JSON cannot hold.
"""

from __future__ import annotations

import statistics
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from mmsbgen.db.records.canonical_json import digest, utc_now
from mmsbgen.db.records.record_checks import CheckedRecord, one_of

TRIAL_STATUSES = ("ok", "invalid", "compile_error", "launch_error", "wrong_result", "timeout", "crashed")
TRIAL_FIGURES = ("median_s", "spread_s", "gbps", "roof_fraction")
"""Figures that are computed from a trial's fields, and are stored and shown with them."""
RUN_STATUSES = ("running", "finished", "interrupted", "failed")
ROOF_KINDS = ("copy", "gather", "update", "adds", "counts", "launch", "barrier")
_OF_ROWS = ("gather", "update", "adds", "counts")
FAILURES = ("compile_error", "launch_error", "wrong_result")
PROGRAM = "program"
"""The ``template_digest`` of kernels whose trials store the digest of their own program."""

_SHORTEST_S = 1e-12


@dataclass(frozen=True, kw_only=True)
class DeviceRecord(CheckedRecord):
    """A device as one driver reports it.

    ``memory_bytes`` and ``extra`` are not part of its identity, because a CPU runtime reports the memory that the
    machine happens to have.
    """

    backend: str
    """'opencl' or 'cuda'."""
    platform: str
    vendor: str
    name: str
    architecture: str
    """The compiler's target, such as 'sm_90'; empty if unknown, and then it matches no other device."""
    driver: str
    kind: str
    """'cpu' or 'gpu'."""
    compute_units: int
    memory_bytes: int
    extra: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def identity(self) -> tuple[str | int, ...]:
        """The fields that identify the device, without its driver."""
        return (self.backend, self.platform, self.vendor, self.name, self.architecture, self.kind, self.compute_units)

    @cached_property
    def key(self) -> str:
        """Digest of identity and driver."""
        return digest([*self.identity, self.driver])

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def label(self) -> str:
        """The device's name for messages: ``opencl: name (platform)``."""
        return f"{self.backend}: {self.name} ({self.platform})" if self.platform else f"{self.backend}: {self.name}"

    def matches(self, text: str) -> bool:
        """Whether backend, name, platform, vendor or architecture contain the text, ignoring case."""
        return text.casefold() in "\n".join((self.label, self.vendor, self.architecture)).casefold()


class KeyPart(CheckedRecord):
    """A part of keys that is known by all of its fields."""

    @cached_property
    def key(self) -> str:
        """Digest of all fields."""
        return digest(list(self.values().values()))


@dataclass(frozen=True)
class ToolchainRecord(KeyPart):
    """A compiler, its version and the options common to all configurations."""

    compiler: str
    version: str
    options: str = ""


@dataclass(frozen=True)
class KernelRecord(KeyPart):
    """A kernel of a family.

    ``template_digest`` is :data:`PROGRAM`.  Older records have the digest of the template's text, which never matches a
    look-up; records of other tools have none.
    """

    family: str
    name: str
    template_digest: str


@dataclass(frozen=True)
class ProblemRecord(KeyPart):
    """Parameters of a problem as the family declares them: numbers, texts and booleans by name."""

    family: str
    params: Mapping[str, Any]

    def __hash__(self) -> int:
        return hash(self.key)


@dataclass(frozen=True)
class Key:
    """Everything that a tuning result depends on; a record with another value of any part is no exact match."""

    device: DeviceRecord
    toolchain: ToolchainRecord
    kernel: KernelRecord
    problem: ProblemRecord

    @cached_property
    def key(self) -> str:
        """Digest of the keys of all parts."""
        return digest([self.device.key, self.toolchain.key, self.kernel.key, self.problem.key])

    def __hash__(self) -> int:
        return hash(self.key)


@dataclass(frozen=True, kw_only=True)
class RunRecord(CheckedRecord):
    """A tuning run: its search strategy, budget, host and versions."""

    uuid: str = field(default_factory=lambda: uuid.uuid4().hex)
    started: str = field(default_factory=utc_now)
    finished: str | None = None
    strategy: str
    budget: Mapping[str, Any] = field(default_factory=dict)
    """For example ``{"trials": 200, "seconds": 600}``; empty for an exhaustive search."""
    seed: int = 0
    host: str = ""
    versions: Mapping[str, Any] = field(default_factory=dict)
    status: str = "running"
    """One of ``RUN_STATUSES``."""
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(self, "status", RUN_STATUSES)


@dataclass(frozen=True, kw_only=True)
class RoofRecord(CheckedRecord):
    """A rate measured on a device in a run: the roof of the roofline of its kernels."""

    run: str
    """``uuid`` of the run."""
    device: DeviceRecord
    kind: str
    """'copy'; 'gather' of random rows of ``row_bytes``; or the text of a :class:`mmsbgen.kernels.roof.RoofKind`."""
    row_bytes: int | None = None
    gbps: float
    """10^9 bytes a second; of launches and barriers 10^9 of them."""
    measured_at: str = field(default_factory=utc_now)

    def __post_init__(self) -> None:
        super().__post_init__()
        kind = self.kind.partition(" in ")[0]
        if kind not in ROOF_KINDS:
            raise ValueError(f"kind must be one of {', '.join(ROOF_KINDS)}, got {self.kind!r}")
        if (kind in _OF_ROWS) != (self.row_bytes is not None):
            raise ValueError("a roof of rows has row_bytes, others have none")

    @cached_property
    def uid(self) -> str:
        """The identifier of this measurement in all databases."""
        return digest([self.run, self.device.key, self.kind, self.row_bytes, self.measured_at])


def newest_rates(roofs: Iterable[RoofRecord]) -> tuple[dict[str, float], defaultdict[str, dict[str, float]]]:
    """The first rate of a copy, and those of gathers by bytes of a row, by the devices' keys."""
    copy: dict[str, float] = {}
    gather: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for roof in roofs:
        if roof.kind == "copy":
            copy.setdefault(roof.device.key, roof.gbps)
        elif roof.kind == "gather":
            gather[roof.device.key].setdefault(str(roof.row_bytes), roof.gbps)
    return copy, gather


@dataclass(frozen=True, kw_only=True)
class TrialRecord(CheckedRecord):
    """One trial of a configuration: its outcome and all its timed repetitions.

    A new field is declared here and in the schema; rows, files, the service's answers and printed columns follow.
    Median, spread, rate and roof fraction are computed from ``times``, ``bytes_moved`` and ``roof_gbps``.
    """

    run: str
    """``uuid`` of the run."""
    key: Key
    config: Mapping[str, Any]
    status: str
    """One of ``TRIAL_STATUSES``; 'ok' needs ``times``."""
    message: str = ""
    """Why the status is not 'ok'."""
    times: tuple[float, ...] = ()
    """All repetitions in seconds, in the order measured."""
    bytes_moved: int | None = None
    """Bytes that the kernel must read and write in one call."""
    roof_gbps: float | None = None
    """The roof that applies to this kernel and problem, measured in the same run."""
    registers: int | None = None
    spill_bytes: int | None = None
    shared_bytes: int | None = None
    compile_s: float | None = None
    energy_j: float | None = None
    """Joules a call, if the device reports them."""
    round: int = 0
    """0 for the search; 1, 2, ... each time the finalists of the run are timed again."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    created_at: str = field(default_factory=utc_now)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "times", tuple(float(t) for t in self.times))
        one_of(self, "status", TRIAL_STATUSES)
        if any(not _SHORTEST_S <= t < 1e9 for t in self.times):
            raise ValueError(f"times must be positive seconds, got {list(self.times)}")
        if self.status == "ok" and not self.times:
            raise ValueError("a trial with status 'ok' needs times")

    @property
    def program(self) -> str:
        """Digest of the tokens of the tested program; empty if it could not be rendered."""
        return str(self.extra.get("program", ""))

    @property
    def template_digest(self) -> str:
        """The digest of the program, or of the template in records of older versions."""
        of_kernel = self.key.kernel.template_digest
        return self.program if of_kernel == PROGRAM else of_kernel

    @cached_property
    def config_digest(self) -> str:
        """Digest of the configuration."""
        return digest(self.config)

    @cached_property
    def uid(self) -> str:
        """The identifier of this trial in all databases, from run, key, configuration and round."""
        return digest([self.run, self.key.key, self.config_digest, self.round])

    @cached_property
    def median_s(self) -> float | None:
        """Median of ``times``, or None without any."""
        return statistics.median(self.times) if self.times else None

    @cached_property
    def spread_s(self) -> float | None:
        """Interquartile range of ``times``, or None with fewer than two."""
        if len(self.times) < 2:
            return None
        low, _, high = statistics.quantiles(self.times, n=4, method="inclusive")
        return max(high - low, 0.0)

    @property
    def gbps(self) -> float | None:
        """``bytes_moved`` over the median, in GB/s."""
        if self.bytes_moved is None or self.median_s is None:
            return None
        return self.bytes_moved / self.median_s / 1e9

    @property
    def roof_fraction(self) -> float | None:
        """``gbps`` over ``roof_gbps``."""
        return None if self.gbps is None or self.roof_gbps is None else self.gbps / self.roof_gbps

    @property
    def barrier_fraction(self) -> float | None:
        """The part of a call that its launches and barriers take at least; None unless it is a host program."""
        least = self.extra.get("barriers_s")
        return min(1.0, least / self.median_s) if isinstance(least, float) and self.median_s else None


@dataclass(frozen=True, kw_only=True)
class QuarantineRecord(CheckedRecord):
    """A configuration that was selected for a key and failed, or whose result was found wrong after its trial.

    It is not selected for that key again until a later trial of it with status 'ok' is stored for the same key.
    """

    key: Key
    """The key of the look-up, not that of the record from which the configuration came."""
    config: Mapping[str, Any]
    """The configuration as used."""
    recorded: Mapping[str, Any]
    """The configuration as a trial records it, before the caller's modes are applied."""
    status: str
    """One of ``FAILURES``."""
    message: str
    extra: Mapping[str, Any] = field(default_factory=dict)
    created_at: str = field(default_factory=utc_now)

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(self, "status", FAILURES)

    @cached_property
    def config_digest(self) -> str:
        """Digest of the configuration as used."""
        return digest(self.config)

    @cached_property
    def recorded_digest(self) -> str:
        """Digest of the configuration as a trial records it."""
        return digest(self.recorded)

    @cached_property
    def uid(self) -> str:
        """The identifier of this failure in all databases."""
        return digest([self.key.key, self.config_digest, self.created_at])

    @property
    def program(self) -> str:
        """Digest of the tokens of the program that failed."""
        return str(self.extra.get("program", ""))

    @property
    def reason(self) -> str:
        """Status and message on one line."""
        return f"{self.status}: {' '.join(self.message.split())}"
